"""The console of the compose file and the units: `laketx console` takes what it is given there."""

from pathlib import Path

import pytest

from laketx.commands.declarations import run_console
from tests.deploy.programs import or_skip
from tests.house.tree import ROOT
from tools import deploy_check


@pytest.mark.parametrize("more", [(), (deploy_check.COMPOSE_PAIR,)], ids=["one", "pair"])
def test_the_console_of_the_compose_file_is_this_machines_alone(more: tuple[Path, ...]) -> None:
    services = or_skip(lambda: deploy_check.compose_model(*more, build=False))["services"]
    console = services["console"]
    assert run_console.make_context("console", console["command"][1:]).params["listen"] == "127.0.0.1:8480"
    assert console["network_mode"] == "host"
    servers = deploy_check.variables_of(console)["LAKETX_SERVER"].split(",")
    ports = [port["published"] for name in ("meta", "meta-2") for port in services.get(name, {}).get("ports", ())]
    assert [server.removeprefix("127.0.0.1:") in ports for server in servers] == [True] * (1 + len(more))


def test_the_unit_of_the_console_is_this_machines_alone() -> None:
    text = (ROOT / "deploy" / "systemd" / "laketx-console.service").read_text(encoding="utf-8")
    words = text.partition('"LAKETX_CONSOLE_OPTIONS=')[2].partition('"')[0].split()
    assert run_console.make_context("console", words).params["listen"] == "127.0.0.1:8480"
    assert "\nMemoryMax=" in text
    assert "\nMemoryDenyWriteExecute" not in text, "polars makes code"
