"""What the check of one request's rights costs among many grants. `make bench-rights`; SCALE as for bench-commit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.serving import server
from benchmarks.words import chosen
from metaservice.client import MetaClient
from metaservice.core.access import Identity, Role
from metaservice.rpc.auth import rights
from metaservice.rpc.auth.caller import Caller
from metaservice.server.identity import OWNER_SOCKET
from metaservice.server.settings import read_settings
from metaservice.server.store_opening import OpenState
from protos.laketx.v1 import access_pb2, catalog_pb2, common_pb2, read_pb2, transaction_pb2

TABLES: Final = 1_000
GRANTS: Final = 10_000
NAMESPACES: Final = 10
GROUPS: Final = 8  # of the caller
CHECKS: Final = 20_000
RUNS: Final = 7


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rights_check(bench: Benchmark, folder: Path) -> None:
    data, names = folder / "data", [f"space{number}" for number in range(NAMESPACES)]
    with server(data, "--tokens", "true"), MetaClient(f"unix:{data}/{OWNER_SOCKET}") as owner:
        for name in names:
            owner.create_namespace(name)
        say(f"{TABLES:,} tables, {GRANTS:,} grants")
        ids = [create(owner, f"{names[at % NAMESPACES]}.t{at}") for at in range(TABLES)]
        for at in range(GRANTS):
            kind = "group:g" if at % 2 else "user:u"
            owner.grant(f"{kind}{at // TABLES}", access_pb2.ROLE_WRITER, table_id=ids[at % TABLES])
    state = OpenState(read_settings(["--data", str(data)])).again()
    assert len(state.access.grants) >= GRANTS
    who = Identity("u4", frozenset(f"g{number}" for number in range(1, 2 * GROUPS, 2)))
    caller = Caller(who, state.access.grants, state)
    asked: dict[str, Callable[[str], Any]] = {
        "ReadService/PlanScan": lambda table_id: read_pb2.PlanScanRequest(table_id=table_id),
        "TransactionService/Append": lambda table_id: transaction_pb2.AppendRequest(table_id=table_id),
        "TransactionService/BeginTransaction": lambda table_id: transaction_pb2.BeginTransactionRequest(
            tables=[transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)]
        ),
    }
    mine = [one for one in ids if caller.on_table(one) >= Role.WRITER]
    say(f"{len(mine)} tables are the caller's, who is in {GROUPS} groups")
    for name, build in asked.items():
        requests = [build(mine[at % len(mine)]) for at in range(scaled(CHECKS))]
        figures = []
        for run in range(RUNS + 1):
            begin = time.perf_counter()
            for request in requests:
                rights.check(caller, f"/laketx.v1.{name}", request)
            if run:
                figures.append((time.perf_counter() - begin) / len(requests) * 1e6)
        bench.add(f"rights of {name.rpartition('/')[2]}", figures, unit="µs", at_most=20)
    state.store.close()


def create(client: MetaClient, name: str) -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint")]
    return client.create_table(catalog_pb2.Table(name=name, columns=columns)).table_id


def main() -> None:
    chosen(__doc__)
    bench = Benchmark("rights", "Rights", packages=["grpcio"])
    with scratch() as folder:
        rights_check(bench, folder)
    raise SystemExit(0 if bench.finish() else 1)


if __name__ == "__main__":
    main()
