"""The Iceberg catalog of the chart: `laketx iceberg serve` takes the words and variables that its pods are given."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from metaservice.cli import command_line
from tests.deploy.programs import or_skip
from tests.iceberg.servers import served
from tests.integration.callers import guarded
from tests.integration.certificates import Authority, Pair
from tests.integration.service import service
from tools import deploy_check, deploy_tools
from tools.deploy_tools import read_yaml
from worker.iceberg.declarations import run_serve

KINDS = ("iceberg", "iceberg-token", "iceberg-insecure")
NOT_HERE = "192.0.2.1:8181"  # no machine's: an address that is let through can't be bound
WAIT_S = 60
Spec = dict[str, Any]


def specs_of(values: str) -> dict[tuple[str, str], Spec]:
    """Of the objects with such values, by kind and name."""
    path = deploy_check.CHART / "ci" / f"{values}.yaml"
    found = or_skip(lambda: read_yaml(deploy_check.render(path, build=False)))
    return {(one["kind"], one["metadata"]["name"]): one["spec"] for one in found if "spec" in one}


def catalog_pod(values: str) -> tuple[Spec, Spec]:
    """The pod of the catalog, and its container."""
    pod: Spec = specs_of(values)["Deployment", "lake-iceberg"]["template"]["spec"]
    return pod, pod["containers"][0]


def variables_of(container: Spec) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


@pytest.mark.parametrize("values", KINDS)
def test_its_words_are_those_of_the_command(values: str) -> None:
    _, container = catalog_pod(values)
    assert container["args"][:2] == ["iceberg", "serve"]
    assert run_serve.make_context("serve", container["args"][2:]).params["listen"] == "0.0.0.0:8181"


def test_a_caller_is_who_its_token_says() -> None:
    """The pod has no token of its own; it knows all replicas, and tells clients where storage is for them."""
    pod, container = catalog_pod("iceberg")
    known = variables_of(container)
    assert "LAKETX_TOKEN_FILE" not in known
    assert {one["name"] for one in pod["volumes"]} == {"tmp", "tls", "iceberg-tls"}
    names = [f"lake-{number}.lake-pods.lake.svc:7070" for number in range(2)]
    assert known["LAKETX_SERVER"] == f"laketxs://{','.join(names)}"
    assert [word for word in container["args"] if word.startswith("--client-config")] == [
        "--client-config=client.region=us-east-1",
        "--client-config=s3.endpoint=https://s3.example.org",
        "--client-config=s3.path-style-access=true",
    ]


def test_its_callers_reach_it_and_it_reaches_the_service() -> None:
    found = specs_of("iceberg")
    deployment = found["Deployment", "lake-iceberg"]
    labels = deployment["template"]["metadata"]["labels"].items()
    assert deployment["replicas"] == 3
    assert found["Service", "lake-iceberg"]["selector"].items() <= labels
    assert found["PodDisruptionBudget", "lake-iceberg"]["selector"]["matchLabels"].items() <= labels
    callers = found["NetworkPolicy", "lake-iceberg"]
    assert callers["podSelector"]["matchLabels"].items() <= labels
    assert callers["policyTypes"] == ["Ingress"]
    assert callers["ingress"][0]["from"] == [
        {"podSelector": {"matchLabels": {"laketx.io/client": "true"}}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}},
    ]
    (among,) = found["NetworkPolicy", "lake-clients"]["podSelector"]["matchExpressions"]
    assert "iceberg" in among["values"]


def test_without_it_nothing_of_it_is_there() -> None:
    assert [name for _, name in specs_of("plain") if "iceberg" in name] == []


TLS: Spec = {"tls": {"secretName": "a"}}
TOKENS: Spec = {"identity": {"tokens": True}}
CERTIFICATES: Spec = {"identity": {"tokens": True, "clientCaSecretName": "a", "clientCertSecretName": "b"}}


@pytest.mark.parametrize(
    ("iceberg", "others", "reason"),
    [
        ({}, {}, r"it needs TLS \(iceberg.tls.secretName\) and a way to know who calls"),
        (TLS, {}, "it needs a way to know who calls"),
        ({"tokenSecretName": "a"}, {}, r"it needs TLS \(iceberg.tls.secretName\), or iceberg.insecure"),
        ({}, TLS | TOKENS, r"it needs TLS \(iceberg.tls.secretName\), or iceberg.insecure"),
        (TLS | {"tokenSecretName": "a"}, TLS | TOKENS, "set identity.tokenSecretName, which says who it is"),
        (TLS, TLS | CERTIFICATES, "would be taken for the Iceberg catalog, by its certificate"),
        ({"insecure": True}, {"storage": {}, "worker": {"enabled": False}}, "storage.warehouse says where"),
        ({"insecure": True, "clientConfig": {"a=b": "c"}}, {}, "'a=b' does not match"),
        ({"insecure": True, "settings": {"hold": 30}}, {}, "hold"),
        ({"insecure": True, "settings": {"listen": 1}}, {}, "'listen' not allowed"),
    ],
)
def test_the_chart_refuses(tmp_path: Path, iceberg: Spec, others: Spec, reason: str) -> None:
    values = {"storage": {"warehouse": "s3a://a"}, "iceberg": {"enabled": True, **iceberg}, **others}
    given = tmp_path / "values.yaml"
    given.write_text(json.dumps(values), encoding="utf-8")
    or_skip(lambda: deploy_tools.go_tool(deploy_tools.HELM, build=False))
    with pytest.raises(ValueError, match=reason):
        deploy_check.render(given, build=False)


@dataclass(frozen=True)
class Place:
    """A service as the values have it, and what stands for the addresses and secrets of a pod."""

    server: str
    authority: Path
    own: Pair
    secret: Path
    token: str


@contextmanager
def place_of(values: str, folder: Path) -> Iterator[Place]:
    authority, secret = Authority(folder), folder / "secret"
    own = authority.issue("catalog")
    secret.write_text("s3cret")
    if values == "iceberg":
        with guarded(folder / "db", *authority.issue("meta").flags) as company:
            server = f"laketxs://{company.service.address}"
            yield Place(server, authority.file, own, secret, company.token("ana"))
    else:
        with service(folder / "db") as (one, _):
            yield Place(one.address, authority.file, own, secret, "s3cret")


def here(text: str, known: Mapping[str, str], place: Place) -> str:
    """A word or variable with the files of this machine."""
    moved = {
        "/etc/laketx/iceberg-tls/tls.crt": str(place.own.cert),
        "/etc/laketx/iceberg-tls/tls.key": str(place.own.key),
        "/etc/laketx/iceberg-token/token": str(place.secret),
        "/etc/laketx/tls/ca.crt": str(place.authority),
        known["LAKETX_SERVER"]: place.server,
        known["LAKETX_WAREHOUSE"]: str(place.authority.parent),
    }
    for name, path in moved.items():
        text = text.replace(name, path)
    return text


@pytest.mark.long
@pytest.mark.parametrize("values", KINDS)
def test_a_pod_serves_those_whom_it_should(
    values: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may listen beyond this machine; asked on this machine, it answers its probe, and whoever shows a token."""
    _, container = catalog_pod(values)
    known = variables_of(container)
    with place_of(values, tmp_path) as place:
        environment = {name: here(text, known, place) for name, text in known.items()}
        words = [here(word, known, place) for word in container["args"] if not word.startswith("--listen")]
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        assert command_line.run([*words, "--listen", NOT_HERE], environment) == 1
        assert "choose another address" in capfd.readouterr().err
        with served(*words, "--listen", "127.0.0.1:0") as catalog:
            trusted = ssl.create_default_context(cafile=str(place.authority))
            probe = container["readinessProbe"]["httpGet"]
            assert catalog.url.partition(":")[0] == probe["scheme"].lower()
            with httpx.Client(base_url=catalog.url, verify=trusted, timeout=WAIT_S) as client:
                assert client.get(probe["path"]).status_code == 200
                asked = [
                    client.get("/v1/v3/namespaces", headers=shown).status_code
                    for shown in ({}, {"authorization": "Bearer other"}, {"authorization": f"Bearer {place.token}"})
                ]
                assert asked == ([200] * 3 if values == "iceberg-insecure" else [401, 401, 200])
