"""The service of the chart: it and its clients take what pods are given; what they refuse is not rendered."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from metaservice.cli import command_line
from metaservice.server.settings import read_settings
from tests.deploy.programs import or_skip
from tests.integration.certificates import Authority
from tests.integration.service import service
from tools import deploy_check, deploy_tools
from tools.deploy_tools import read_yaml

Spec = dict[str, Any]
TLS: Spec = {"tls": {"secretName": "a"}}
CLIENT_CA: Spec = {"clientCaSecretName": "a"}
OIDC: Spec = {"oidc": {"issuer": "https://a", "audience": "a"}}
LARGE = 3_000_000


def render(folder: Path, values: Spec) -> str:
    """The chart with such values beside a warehouse; raises ValueError with the words of a refusal."""
    given = folder / "values.yaml"
    given.write_text(json.dumps({"storage": {"warehouse": "s3a://a"}} | values), encoding="utf-8")
    or_skip(lambda: deploy_tools.go_tool(deploy_tools.HELM, build=False))
    return deploy_check.render(given, build=False)


def specs_of(text: str) -> dict[tuple[str, str], Spec]:
    """Of the objects, by kind and name."""
    return {(one["kind"], one["metadata"]["name"]): one["spec"] for one in read_yaml(text) if "spec" in one}


def specs_of_file(path: Path) -> dict[tuple[str, str], Spec]:
    return specs_of(or_skip(lambda: deploy_check.render(path, build=False)))


def pods_of(specs: Mapping[tuple[str, str], Spec]) -> dict[str, Spec]:
    """By the name of their container."""
    templates = (spec.get("jobTemplate", {}).get("spec", spec).get("template") for spec in specs.values())
    pods = [template["spec"] for template in templates if template]
    return {pod["containers"][0]["name"]: pod for pod in pods}


def variables_of(pod: Spec) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["containers"][0]["env"] if "value" in one}


@pytest.mark.parametrize("path", deploy_check.VALUES, ids=lambda path: path.stem)
def test_the_service_takes_its_variables(path: Path) -> None:
    assert read_settings([], variables_of(pods_of(specs_of_file(path))["service"])).exposed == ""


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"storage": {}}, "storage.warehouse says where"),
        ({"service": {"prot": 1}}, "'prot' not allowed"),
        ({"service": {"disruptionsMax": 2}}, "disruptionsMax"),
        ({"service": {"store": "file:///lake"}}, "store"),
        ({"storage": {"warehouse": "s3a://a", "accessKey": "a"}}, "storage.secretKey belongs to"),
        (TLS | {"identity": {"oidc": {"issuer": "https://a"}}}, "oidc.audience says"),
        ({"identity": {"tokens": True}}, "need TLS: set tls.secretName"),
        ({"identity": OIDC}, "need TLS: set tls.secretName"),
        ({"identity": CLIENT_CA | {"clientCertSecretName": "b"}}, "need TLS: set tls.secretName"),
        ({"identity": {"tokenSecretName": "a"}}, "is sent with TLS alone: set tls.secretName"),
        (TLS | {"identity": CLIENT_CA}, "set identity.clientCertSecretName, which workers, purges and probes show"),
        (TLS | {"identity": {"clientCertSecretName": "a"}}, "set identity.clientCaSecretName"),
        (TLS | {"identity": {"admins": ["ana"]}}, "identity.admins are known by what they show"),
    ],
)
def test_the_chart_refuses(tmp_path: Path, values: Spec, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        render(tmp_path, values)


def test_a_setting_that_has_a_value_of_its_own_is_refused(tmp_path: Path) -> None:
    """Every variable of the service that the chart sets itself, and no other."""
    found = [variables_of(pods_of(specs_of_file(path))["service"]) for path in deploy_check.VALUES]
    options = {name.removeprefix("LAKETX_").lower().replace("_", "-") for one in found for name in one}
    own = (options & set(vars_of_settings())) - {"lease-ms", "reflection"}  # of service.settings in a file of ci/
    assert {"listen", "tokens", "store"} <= own
    for option in sorted(own):
        with pytest.raises(ValueError, match=f"service.settings.{option}: the chart sets it"):
            render(tmp_path, {"service": {"settings": {option: "a"}}})


def vars_of_settings() -> list[str]:
    """The settings of the service, as its options without dashes."""
    return [name.replace("_", "-") for name in read_settings([], {}).__dataclass_fields__]


def test_large_numbers_are_whole(tmp_path: Path) -> None:
    settings = {"outcome-keep-ms": LARGE, "lease-ms": 60000, "stream-idle-s": 0.5, "reflection": True}
    scaled = {"enabled": True, "metric": "queue", "maxReplicas": LARGE, "tasksPerWorker": LARGE}
    values = {
        "service": {"settings": settings, "startSeconds": LARGE, "resources": {"limits": {"memory": LARGE}}},
        "worker": {"replicas": LARGE, "disruptionsMax": LARGE, "autoscaling": scaled},
        "iceberg": {"enabled": True, "insecure": True, "replicas": LARGE, "disruptionsMax": LARGE},
    }
    text = render(tmp_path, values)
    assert re.findall(r".*\de[+]\d.*", text) == []
    specs = specs_of(text)
    pod = pods_of(specs)["service"]
    found = read_settings([], variables_of(pod))
    assert (found.outcome_keep_ms, found.lease_ms, found.stream_idle_s, found.reflection) == (LARGE, 60000, 0.5, True)
    assert pod["containers"][0]["startupProbe"]["failureThreshold"] == LARGE // 5
    assert pod["containers"][0]["resources"]["limits"]["memory"] == LARGE
    assert specs["Deployment", "lake-iceberg"]["replicas"] == LARGE
    assert specs["PodDisruptionBudget", "lake-worker"]["maxUnavailable"] == LARGE
    scaler = specs["HorizontalPodAutoscaler", "lake-worker"]
    assert scaler["maxReplicas"] == LARGE
    assert scaler["metrics"][0]["external"]["target"]["averageValue"] == str(LARGE)


@pytest.mark.parametrize("kind", ["service", "worker", "purge"])
def test_a_pod_shows_its_certificate(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the service takes nobody without one: the probe of its own pod has one, too."""
    pod = pods_of(specs_of_file(deploy_check.CHART / "ci" / "identity.yaml"))[kind]
    mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    (volume,) = [one for one in pod["volumes"] if one["name"] == mounts["/etc/laketx/client"]]
    assert volume["secret"]["secretName"] == "laketx-worker-tls"
    authority, clients = Authority(tmp_path / "service"), Authority(tmp_path / "clients", "clients")
    shown = clients.issue("worker", ())
    known = {
        "/etc/laketx/tls/ca.crt": str(authority.file),
        "/etc/laketx/client/tls.crt": str(shown.cert),
        "/etc/laketx/client/tls.key": str(shown.key),
    }
    with service(tmp_path / "db", *authority.issue("meta").flags, "--tls-client-ca", str(clients.file)) as (one, _):
        environment = {name: known[text] for name, text in variables_of(pod).items() if text in known}
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        words = ["--server", f"laketxs://{one.address}"]
        assert command_line.run([*words, "health"], environment) == 0
        assert command_line.run([*words, "whoami", "-o", "json"], environment) == 0
        assert '"worker"' in capsys.readouterr().out


def test_replicas_are_found_by_their_own_names_and_one_may_go() -> None:
    """What each says of itself is among the addresses that clients are given: they go to no other."""
    of_kind = specs_of_file(deploy_check.CHART / "ci" / "high-availability.yaml")
    replicas = of_kind["StatefulSet", "lake"]
    pod = replicas["template"]["spec"]
    environment = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    names = [f"lake-{number}" for number in range(replicas["replicas"])]
    own = [environment["LAKETX_ADVERTISE"].replace("$(POD_NAME)", name) for name in names]
    assert environment["LAKETX_SERVER"] == f"laketxs://{','.join(own)}"
    worker = of_kind["Deployment", "lake-worker"]["template"]["spec"]["containers"][0]["env"]
    assert {one["value"] for one in worker if one["name"] == "LAKETX_SERVER"} == {environment["LAKETX_SERVER"]}
    names_of_pods = of_kind["Service", replicas["serviceName"]]
    assert (names_of_pods["clusterIP"], names_of_pods["publishNotReadyAddresses"]) == ("None", True)
    assert ("Service", "lake") not in of_kind
    assert "volumeClaimTemplates" not in replicas
    assert all("tcpSocket" in pod["containers"][0][f"{kind}Probe"] for kind in ("startup", "readiness", "liveness"))
    assert of_kind["PodDisruptionBudget", "lake"]["maxUnavailable"] == 1
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"].items() <= replicas["template"]["metadata"]["labels"].items()
