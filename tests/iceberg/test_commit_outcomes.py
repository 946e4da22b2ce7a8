"""Commits whose outcome the catalog can't know: MetaService is killed, cut off, or its answer is lost.

The catalog runs in this process, so that its client of MetaService gives up after a second instead of a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import uvicorn

from laketx import Lake, connect
from metaservice.client import MetaClient
from tests.iceberg.servers import Server, catalog_of
from tests.iceberg.writers import SCHEMA, Request, appended, created, error_of, head, ids, made, numbers, prepared
from tests.integration.broken_network import Network, Way
from tests.integration.service import TIMEOUT_S, Service, service, wait_until
from worker.iceberg.rest.app import build_app
from worker.iceberg.rest.listing import Listings
from worker.iceberg.rest.plans import Plans
from worker.iceberg.rest.tables import Showing, Tables
from worker.web.callers import Callers
from worker.web.serving import bind

unknown_state = pytest.importorskip("pyiceberg.exceptions", reason="pyiceberg is missing").CommitStateUnknownException
BUDGET_S: Final = 1.0
UNKNOWN: Final = (500, "CommitStateUnknownException")


class Far:
    """A catalog, and the way between it and MetaService, which a test can break."""

    def __init__(self, one: Service, way: Way, server: Server, lake: Lake) -> None:
        self.service, self.way, self.server, self.lake = one, way, server, lake

    def lose_the_answer_to(self, request: bytes) -> None:
        self.way.mutes = request


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    folder, network = tmp_path_factory.mktemp("far"), Network()
    try:
        with (
            service(folder / "db") as (one, _),
            connect(f"laketx://{one.address}", warehouse=str(folder / "lake")) as lake,
        ):
            lake.client.create_namespace("shop")
            way = Way(network, one.address)
            with catalog_here(way.address, folder / "lake") as server:
                yield Far(one, way, server, lake)
    finally:
        network.close()


@contextmanager
def catalog_here(address: str, warehouse: Path) -> Iterator[Server]:
    def connect_to(_token: str) -> MetaClient:
        return MetaClient(f"laketx://{address}", call_timeout_s=BUDGET_S, retry_budget_s=BUDGET_S)

    callers, tables = Callers(connect_to, str(warehouse), now_s=time.monotonic), Tables(Showing(), time.monotonic)
    app = build_app(callers, tables, Listings(tables, time.monotonic), Plans(60.0, time.monotonic), {})
    bound = bind("127.0.0.1:0", "ICEBERG_LISTEN")
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: running.run(sockets=[bound]), name="catalog")
    thread.start()
    try:
        yield Server(None, f"http://127.0.0.1:{bound.getsockname()[1]}", "")
    finally:
        running.should_exit = True
        thread.join(TIMEOUT_S)
        callers.close()


def folder_of(theirs: Any) -> bytes:
    """The folder that the table's next files go to, which is the id of the transaction that adds them."""
    return str(theirs.properties["write.data.path"]).rpartition("/")[2].encode()


def repeat(far: Far, request: Request, name: str, rows: list[int]) -> None:
    """The same again over a way that is whole, until the catalog has found it, and once more: it lands once."""
    far.way.mend()
    wait_until(lambda: request.send(far.server).status_code == 200)
    assert request.send(far.server).status_code == 200
    table = far.lake.table(f"shop.{name}")
    assert (ids(table), head(table)) == (rows, 1)
    [commit] = table.history(1)
    assert commit.rows_added == len(rows)


def test_an_answer_that_is_lost(far: Far) -> None:
    theirs = made(far.server, "lost")
    request = appended(theirs, numbers([1, 2]))
    far.lose_the_answer_to(folder_of(theirs))
    status, kind, said = error_of(request.send(far.server))
    assert (status, kind) == UNKNOWN
    assert "not known" in said
    assert far.way.is_muted
    assert ids(far.lake.table("shop.lost")) == [1, 2], "it took place"
    assert error_of(request.send(far.server))[:2] == UNKNOWN, "a repeat knows no more"
    repeat(far, request, "lost", [1, 2])


@pytest.mark.parametrize(
    "call", ["commit", *(pytest.param(one, marks=pytest.mark.long) for one in ("begin", "register"))]
)
def test_the_answer_to_a_call_of_a_delete_is_lost(far: Far, call: str) -> None:
    theirs = made(far.server, f"less_{call}")
    theirs.append(numbers([1, 2, 3]))
    table = far.lake.table(f"shop.less_{call}")
    folder = folder_of(theirs.refresh())
    request = prepared(theirs, lambda transaction: transaction.delete("id = 2"))
    no_condition = b"\x12\x00"  # the read of a change, which follows the table's id
    far.lose_the_answer_to(
        {"begin": folder, "register": b"deletes-0", "commit": table.table_id.encode() + no_condition}[call]
    )
    assert error_of(request.send(far.server))[:2] == UNKNOWN
    assert far.way.is_muted
    assert ids(table.refresh()) == ([1, 3] if call == "commit" else [1, 2, 3])
    far.way.mend()
    wait_until(lambda: request.send(far.server).status_code == 200)
    assert request.send(far.server).status_code == 200
    assert (ids(table.refresh()), head(table)) == ([1, 3], 2)


def test_a_service_that_is_cut_off_before(far: Far) -> None:
    request = appended(made(far.server, "cut"), numbers([1, 2]))
    far.way.is_cut = True
    assert error_of(request.send(far.server))[:2] == UNKNOWN
    assert head(far.lake.table("shop.cut")) == 0
    repeat(far, request, "cut", [1, 2])


def test_pyiceberg_is_told(far: Far) -> None:
    theirs = made(far.server, "told")
    far.lose_the_answer_to(folder_of(theirs))
    with pytest.raises(unknown_state):
        theirs.append(numbers([1, 2]))
    far.way.mend()
    wait_until(lambda: far.server.get("/v1/v2/namespaces/shop/tables/told").status_code == 200)
    assert theirs.refresh().scan().to_arrow().num_rows == 2


def test_a_new_table_with_rows(far: Far) -> None:
    transaction = catalog_of(far.server, 2).create_table_transaction("shop.born", SCHEMA)
    transaction.append(numbers([1, 2]))
    request = created(transaction, "shop.born")
    far.lose_the_answer_to(b"shop.born")  # which the commit says first: until then the table has a hidden name
    assert error_of(request.send(far.server))[:2] == UNKNOWN
    assert far.way.is_muted
    repeat(far, request, "born", [1, 2])


def test_a_new_table_without_rows(far: Far) -> None:
    transaction = catalog_of(far.server, 2).create_table_transaction("shop.empty", SCHEMA)
    request = created(transaction, "shop.empty")
    far.lose_the_answer_to(b"shop.empty")
    assert error_of(request.send(far.server))[:2] == UNKNOWN
    far.way.mend()
    wait_until(lambda: request.send(far.server).status_code == 200)
    assert request.send(far.server).status_code == 200
    assert [one for one in far.lake.tables() if one == "shop.empty"] == ["shop.empty"]


def test_a_service_that_is_killed_after_its_commit(far: Far) -> None:
    theirs = made(far.server, "killed")
    request, answers = appended(theirs, numbers([1, 2])), []
    far.lose_the_answer_to(folder_of(theirs))
    sender = threading.Thread(target=lambda: answers.append(request.send(far.server)))
    sender.start()
    wait_until(lambda: far.way.is_muted)
    wait_until(lambda: head(far.lake.table("shop.killed")) == 1)
    far.service.kill()
    sender.join(TIMEOUT_S)
    assert [error_of(one)[:2] for one in answers] == [UNKNOWN]
    far.service.start()
    repeat(far, request, "killed", [1, 2])
