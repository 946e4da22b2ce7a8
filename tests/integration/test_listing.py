"""Lists in pages while tables come: a page with fewer than were asked for is not the last one."""

import threading
from pathlib import Path

from metaservice.core.table.model import Principal
from metaservice.rpc.convert import wire_catalog
from metaservice.service.table.catalog import Mode
from protos.laketx.v1 import catalog_pb2
from tests.conformance.play import new_uuid7
from tests.integration.service import TIMEOUT_S
from tests.integration.warehouse import warehouse


def orders(name: str) -> catalog_pb2.Table:
    return catalog_pb2.Table(name=name, columns=[catalog_pb2.Column(name="id", type="bigint")])


def test_a_list_of_tables_goes_on_behind_one_that_is_not_durable_yet(tmp_path: Path) -> None:
    with warehouse(tmp_path) as lake:
        for name in ("a", "c"):
            lake.client.create_table(orders(name))
        calls = lake.service.calls
        meta = wire_catalog.new_table(catalog_pb2.CreateTableRequest(request_id=new_uuid7(), table=orders("b")))
        made, listed = threading.Event(), threading.Event()

        def make() -> None:
            """No job's work is durable before the job is over."""
            calls.catalog.create_table(meta, Principal(), Mode.CREATE)
            made.set()
            listed.wait(TIMEOUT_S)

        asked = calls.decider.ask(make)
        assert made.wait(TIMEOUT_S)
        try:
            for size in (1, 2, 3, 4):
                assert [one.name for one in lake.client.list_tables(page_size=size)] == ["a", "c", "days"]
        finally:
            listed.set()
        asked.wait()
        assert [one.name for one in lake.client.list_tables(page_size=1)] == ["a", "b", "c", "days"]
