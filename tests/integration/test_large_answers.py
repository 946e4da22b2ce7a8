"""Answers have a bound in bytes: what was written can be listed, however large its items are."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from metaservice.client import InvalidError, MetaClient, add_column
from metaservice.core import limits
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from tests.integration.service import service

TABLES = 24
FILES = 400


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetaClient]:
    with service(tmp_path_factory.mktemp("large") / "db") as (server, _), MetaClient(server.address) as found:
        yield found


def test_tables_with_the_largest_properties_are_all_listed(client: MetaClient) -> None:
    columns = [catalog_pb2.Column(name="id", type="bigint")]
    properties = {f"user.{number}": "x" * limits.TEXT_CHARS_MAX for number in range(limits.PROPERTIES_MAX)}
    names = [f"t{number:03}" for number in range(TABLES)]
    for name in names:
        client.create_table(catalog_pb2.Table(name=name, columns=columns, properties=properties))
    request = catalog_pb2.ListTablesRequest(page_size=limits.PAGE_SIZE_MAX)
    pages = list(client._pages(client._catalog.ListTables, request))
    assert [table.name for page in pages for table in page.tables] == names
    assert len(pages) > 1
    assert all(page.ByteSize() <= limits.ANSWER_BYTES_MAX + 1_000 for page in pages)
    assert [table.name for table in client.list_tables()] == names
    for table in client.list_tables():
        client.drop_table(table.table_id)
    request = catalog_pb2.ListTablesRequest(page_size=limits.PAGE_SIZE_MAX, include_dropped=True)
    dropped = list(client._pages(client._catalog.ListTables, request))
    assert sorted(table.name for page in dropped for table in page.tables) == names
    assert len(dropped) > 1


def test_files_with_large_statistics_are_listed_in_parts(client: MetaClient) -> None:
    columns = [catalog_pb2.Column(name=f"c{number}", type="string") for number in range(10)]
    table = client.create_table(catalog_pb2.Table(name="wide", columns=columns))
    largest = common_pb2.Value(text="x" * 900)
    stats = [
        common_pb2.ColumnStats(column_id=one.column_id, min=largest, max=largest, nulls=0) for one in table.columns
    ]
    inserting = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)
    intent = client.begin([inserting])
    files = [
        common_pb2.DataFile(path=f"{intent.txn_id}/{number}.parquet", rows=1, bytes=1, stats=stats)
        for number in range(FILES)
    ]
    intent.register(table.table_id, files)
    intent.commit([common_pb2.Change(table_id=table.table_id)])
    parts = list(client._stream(client._reads.ListFiles, read_pb2.ListFilesRequest(table_id=table.table_id)))
    assert sum(len(part.entries) for part in parts) == FILES
    assert len(parts) > 1
    assert all(part.ByteSize() <= limits.ANSWER_BYTES_MAX + 10_000 for part in parts)


def test_a_table_never_outgrows_an_answer(client: MetaClient) -> None:
    def columns(count: int) -> list[catalog_pb2.Column]:
        return [
            catalog_pb2.Column(name=f"c{number}", type="int", comment="x" * limits.TEXT_CHARS_MAX)
            for number in range(count)
        ]

    fits = limits.TABLE_BYTES_MAX // (limits.TEXT_CHARS_MAX + 10)
    with pytest.raises(InvalidError, match="TABLE_TOO_LARGE"):
        client.create_table(catalog_pb2.Table(name="too_large", columns=columns(fits + 5)))
    table = client.create_table(catalog_pb2.Table(name="grows", columns=columns(fits - 5)))
    grown = 0
    with suppress(InvalidError):
        for grown in range(10):
            more = add_column(f"more{grown}", "int", comment="x" * limits.TEXT_CHARS_MAX)
            client.alter_columns(table.table_id, more)
    assert client.get_table("grows").head_version == grown in range(1, 9)
    assert "grows" in [one.name for one in client.list_tables()]
    assert len(list(client.list_schemas(table.table_id))) == grown + 1
