"""What `make deploy-check` finds: nothing in the tree, and what is wrong where something is planted."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaservice.server.settings import read_settings
from tests.deploy.programs import or_skip
from tools import deploy_check
from tools.deploy_tools import schemas_of

SERVICE = {
    "image": "laketx:0.1.0",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "healthcheck": {"test": ["CMD", "true"]},
    "ports": [{"target": 7070, "host_ip": "127.0.0.1"}],
}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(deploy_check.lint_image, marks=pytest.mark.long),  # hadolint is installed first
        lambda: deploy_check.check_compose(build=False),
        lambda: deploy_check.check_chart(build=False),
        deploy_check.check_units,
        lambda: deploy_check.check_rules(build=False),
    ],
    ids=["container file", "compose file", "chart", "units", "rules"],
)
def test_nothing_is_wrong(check: Callable[[], list[str]]) -> None:
    assert or_skip(check) == []


@pytest.mark.long
def test_nothing_is_wrong_where_all_programs_are_built() -> None:
    """Skipped where there is no go."""
    assert or_skip(deploy_check.check_compose) == []
    assert or_skip(deploy_check.check_chart) == []
    assert or_skip(deploy_check.check_rules) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"read_only": False}, ["its root is writable"]),
        ({"cap_drop": []}, ["it keeps capabilities"]),
        ({"security_opt": []}, ["it may gain privileges"]),
        ({"healthcheck": {}}, ["nothing asks whether it is well"]),
        ({"image": "laketx:latest"}, ["laketx:latest names no version"]),
        ({"image": "example.org:5000/laketx"}, ["example.org:5000/laketx names no version"]),
        ({"ports": [{"target": 1}]}, ["port 1 is published on other addresses than 127.0.0.1"]),
    ],
)
def test_open_doors_of_a_service(change: dict[str, Any], found: list[str]) -> None:
    assert list(deploy_check.list_open_doors("meta", {**SERVICE, **change})) == found


def pod(**changes: Any) -> dict[str, Any]:
    container = {
        "name": "c",
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "tmp"}],
    }
    container.update(changes.pop("container", {}))
    spec = {
        "securityContext": {"runAsNonRoot": True},
        "automountServiceAccountToken": False,
        "volumes": [{"name": "tmp"}],
        "containers": [container],
    }
    return {"spec": {"template": {"spec": {**spec, **changes}}}}


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (pod(), []),
        ({"kind": "ServiceAccount"}, []),
        (pod(securityContext={}), ["it may run as root"]),
        (pod(automountServiceAccountToken=None), ["it gets the token of its account"]),
        (pod(volumes=[]), ["c: it mounts what is not there: tmp"]),
        (pod(container={"resources": {}}), ["c: its memory has no limit"]),
        (
            pod(container={"securityContext": {}}),
            ["c: its root is writable, or it may gain privileges", "c: it keeps capabilities"],
        ),
    ],
)
def test_loose_ends_of_an_object(document: dict[str, Any], found: list[str]) -> None:
    assert list(deploy_check.list_loose_ends(document)) == found


@pytest.mark.long  # hadolint is installed first
def test_a_lint_of_the_container_file_finds_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python\nRUN cd /tmp\n", encoding="utf-8")
    monkeypatch.setattr(deploy_check, "CONTAINER_FILE", bad)
    assert any("DL3006" in line for line in or_skip(deploy_check.lint_image))


def test_a_unit_that_lets_more_in_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(deploy_check.UNITS, tmp_path / "units")
    unit = tmp_path / "units" / "laketx.service"
    lines = unit.read_text(encoding="utf-8").splitlines()
    unit.write_text("\n".join(line for line in lines if not line.startswith(("Protect", "Private"))), encoding="utf-8")
    (tmp_path / "units" / "laketx-purge.timer").write_text("[Timer]\nOnCalender=daily\n", encoding="utf-8")
    monkeypatch.setattr(deploy_check, "UNITS", tmp_path / "units")
    found = "\n".join(or_skip(deploy_check.check_units))
    assert "laketx.service: → Overall exposure" in found
    assert "OnCalender" in found


def test_two_services_of_the_compose_file_share_a_store() -> None:
    services = or_skip(lambda: deploy_check.compose_model(deploy_check.COMPOSE_PAIR, build=False))["services"]
    addresses = "meta:7070,meta-2:7070"
    for name in ("meta", "meta-2"):
        environment = deploy_check.variables_of(services[name])
        assert environment["LAKETX_STORE"] == "s3://lake/meta"
        assert environment["LAKETX_ADVERTISE"] == f"{name}:7070"
    inside = [one for one in services.values() if one.get("network_mode") != "host"]
    assert {deploy_check.variables_of(one).get("LAKETX_SERVER", addresses) for one in inside} == {addresses}
    ports = [port["published"] for name in ("meta", "meta-2") for port in services[name]["ports"]]
    assert len(set(ports)) == len(ports)


def test_a_schema_refuses_unknown_fields_and_leads_into_itself() -> None:
    kind = [{"group": "apps", "kind": "Jar", "version": "v1"}]
    jar = {
        "type": "object",
        "description": "A jar.",
        "properties": {"lid": {"$ref": "#/components/schemas/Lid"}, "labels": {"type": "object"}},
        "x-kubernetes-group-version-kind": kind,
    }
    lid = {"type": "object", "properties": {"wide": {"type": "integer", "format": "int32"}}}
    found = schemas_of({"components": {"schemas": {"Jar": jar, "Lid": lid}}})
    assert list(found) == ["jar-apps-v1.json"]
    schema = found["jar-apps-v1.json"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["lid"] == {"$ref": "#/definitions/Lid"}
    assert schema["properties"]["labels"] == {"type": "object"}
    assert schema["properties"]["apiVersion"] == {"const": "apps/v1"}
    assert schema["definitions"]["Lid"] == {
        "type": "object",
        "properties": {"wide": {"type": "integer"}},
        "additionalProperties": False,
    }


def test_an_alarm_that_does_not_fire_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tmp_path / deploy_check.ALERTS.name
    text = deploy_check.ALERTS.read_text(encoding="utf-8")
    rules.write_text(text.replace("max (laketx_leader) == 0", "laketx_leader > 1"), encoding="utf-8")
    monkeypatch.setattr(deploy_check, "ALERTS", rules)
    found = or_skip(lambda: deploy_check.check_rules(build=False))
    assert any("LakeTXNoLeader" in line for line in found)


@pytest.mark.parametrize("more", [(), (deploy_check.COMPOSE_PAIR,)], ids=["alone", "pair"])
def test_services_of_the_compose_file_take_their_variables(more: tuple[Path, ...]) -> None:
    services = or_skip(lambda: deploy_check.compose_model(*more, build=False))["services"]
    served = [one for one in services.values() if one.get("command") == ["serve"]]
    assert len(served) == 1 + len(more)
    for one in served:
        assert read_settings([], deploy_check.variables_of(one)).exposed == ""
