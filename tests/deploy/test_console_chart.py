"""The console of the chart: `laketx console` takes the words and variables that its pod is given."""

import json
from pathlib import Path
from typing import Any

import pytest

from laketx.commands.declarations import run_console
from tests.deploy.programs import or_skip
from tools import deploy_check, deploy_tools
from tools.deploy_tools import read_yaml
from worker.console.command import provider_of

Spec = dict[str, Any]
TLS: Spec = {"tls": {"secretName": "a"}}
TOKENS: Spec = TLS | {"identity": {"tokens": True}}
CERTIFICATES: Spec = TLS | {"identity": {"tokens": True, "clientCaSecretName": "a", "clientCertSecretName": "b"}}


def specs_of(values: str) -> dict[tuple[str, str], Spec]:
    """Of the objects with such values, by kind and name."""
    path = deploy_check.CHART / "ci" / f"{values}.yaml"
    documents = or_skip(lambda: read_yaml(deploy_check.render(path, build=False)))
    return {(each["kind"], each["metadata"]["name"]): each["spec"] for each in documents if "spec" in each}


def test_a_pod_of_the_chart_is_one_that_the_command_starts() -> None:
    pod = specs_of("console")["Deployment", "lake-console"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["args"][0] == "console"
    options = run_console.make_context("console", container["args"][1:]).params
    assert (options["listen"], options["public_url"]) == ("0.0.0.0:8480", "https://console.example.org")
    asked = provider_of(options, {}, needs_client=True)
    assert asked is not None
    assert (asked.issuer, asked.client_id, asked.bearer) == ("https://login.example.org", "laketx", "id")
    assert (asked.scopes, asked.secret_file) == ("openid offline_access", "/etc/laketx/console-secret/secret")
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/etc/laketx/console-tls", "/etc/laketx/console-secret", "/etc/laketx/tls"} <= mounts
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["LAKETX_SERVER"] == "laketxs://lake.lake.svc:7070"
    assert "LAKETX_TOKEN_FILE" not in variables, "people show their own"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "console", "scheme": "HTTPS"}


def test_people_reach_it_and_it_reaches_the_service() -> None:
    objects = specs_of("console")
    deployment = objects["Deployment", "lake-console"]
    labels = deployment["template"]["metadata"]["labels"].items()
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"}), "sessions are in its memory"
    assert objects["Service", "lake-console"]["selector"].items() <= labels
    callers = objects["NetworkPolicy", "lake-console"]
    assert callers["podSelector"]["matchLabels"].items() <= labels
    assert callers["ingress"][0]["from"] == [
        {"podSelector": {"matchLabels": {"laketx.io/client": "true"}}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}},
    ]
    (among,) = objects["NetworkPolicy", "lake-clients"]["podSelector"]["matchExpressions"]
    assert "console" in among["values"]


def test_without_it_nothing_of_it_is_there() -> None:
    assert [name for _, name in specs_of("plain") if "console" in name] == []


@pytest.mark.parametrize(
    ("console", "others", "reason"),
    [
        ({}, {}, r"it needs TLS \(console.tls.secretName\) and a service that asks for tokens"),
        (TLS, {}, "it needs a service that asks for tokens"),
        ({}, TOKENS, r"it needs TLS \(console.tls.secretName\)"),
        (TLS, CERTIFICATES, "it can't be used with identity.clientCaSecretName"),
        (TLS | {"oidc": {"clientId": "a"}}, TOKENS, "set identity.oidc"),
        (TLS | {"oidc": {"clientSecretName": "a"}}, TOKENS, "set console.oidc.clientId"),
        (TLS | {"publicUrl": "http://a"}, TOKENS, "publicUrl"),
        (TLS | {"publicUrl": "https://a/b"}, TOKENS, "publicUrl"),
        (TLS | {"replicas": 2}, TOKENS, "'replicas' not allowed"),
        (TLS, TOKENS | {"service": {"settings": {"console": "0.0.0.0:1"}}}, "the chart sets it by a value of its own"),
    ],
)
def test_the_chart_refuses(tmp_path: Path, console: Spec, others: Spec, reason: str) -> None:
    values = {"storage": {"warehouse": "s3a://a"}, "console": {"enabled": True, **console}, **others}
    given = tmp_path / "values.yaml"
    given.write_text(json.dumps(values), encoding="utf-8")
    or_skip(lambda: deploy_tools.go_tool(deploy_tools.HELM, build=False))
    with pytest.raises(ValueError, match=reason):
        deploy_check.render(given, build=False)
