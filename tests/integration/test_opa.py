"""The example policy in deploy/, answered by a real Open Policy Agent."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.play import new_uuid7
from tests.house.tree import ROOT
from tests.integration.callers import append, create, guarded
from tests.integration.service import TIMEOUT_S, free_address
from tests.integration.storage_server import wait_for
from tools.deploy_tools import GoTool, NotCheckedError, go_tool

OPA: Final = GoTool("github.com/open-policy-agent/opa", "v1.22.2", "make test-long")
POLICY: Final = ROOT / "deploy/policy/laketx.rego"
READ, WRITE, DROP = "ReadService/ListVersions", "ReadService/CreateTag", "CatalogService/DropTable"


@pytest.fixture
def opa(tmp_path: Path) -> Iterator[str]:
    """Its URL."""
    try:
        program = go_tool(OPA)
    except NotCheckedError as error:
        pytest.skip(f"there is no OPA here: {error}")
    address = free_address()
    with (tmp_path / "opa.txt").open("wb") as out:
        running = subprocess.Popen([str(program), "run", "--server", "--addr", address, POLICY], stdout=out, stderr=out)
        try:
            wait_for(f"http://{address}/health", running)
            yield f"http://{address}"
        finally:
            running.terminate()
            running.wait(TIMEOUT_S)


@pytest.mark.long
def test_the_example_policy_gives_the_roles_that_it_says(opa: str, tmp_path: Path) -> None:
    with guarded(tmp_path / "data", "--policy-url", f"{opa}/v1/data/laketx/role", "--policy-keep-s", "0") as lake:
        tables = {}
        for namespace in ("shop", "people"):
            lake.owner.call("CatalogService/CreateNamespace", name=namespace, request_id=new_uuid7())
            tables[namespace] = create(lake.owner, f"{namespace}.t")
            append(lake.owner, tables[namespace])
        may = {
            ("stranger",): {},
            ("analyst", "analysts"): {"shop": [READ]},
            ("clerk", "shop"): {"shop": [READ, WRITE]},
            ("both", "people", "analysts"): {"shop": [READ], "people": [READ, WRITE]},
            ("keeper", "platform"): {"shop": [READ, WRITE, DROP], "people": [READ, WRITE, DROP]},
        }
        for who, places in may.items():
            caller = lake.named(*who)
            for namespace, table_id in tables.items():
                tag = {"name": who[0], "version": 1}
                found = [
                    name
                    for name, fields in ((READ, {}), (WRITE, tag), (DROP, {}))
                    if caller.outcome(name, table_id=table_id, **fields) == "ok"
                ]
                assert found == places.get(namespace, []), (who, namespace)
            listed = [one.name for one in caller.call("CatalogService/ListTables").tables]
            if DROP not in places.get("shop", []):
                assert listed == sorted(f"{namespace}.t" for namespace in places)
