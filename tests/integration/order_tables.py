"""Tables of orders, for tests of the catalog."""

from itertools import count

import pytest

from metaservice.client import MetaServiceError
from protos.laketx.v1 import catalog_pb2
from tests.integration.service import Stubs

numbers = count()


def fresh(word: str = "t") -> str:
    return f"{word}{next(numbers)}"


def column(name: str, kind: str, *, nullable: bool = True) -> catalog_pb2.Column:
    return catalog_pb2.Column(name=name, type=kind, nullable=nullable)


def orders(name: str, *more: catalog_pb2.Column, **settings: str) -> catalog_pb2.Table:
    columns = [column("id", "bigint", nullable=False), column("day", "string"), *more]
    return catalog_pb2.Table(name=name, columns=columns, partition_columns=["day"], properties=settings)


def ids(table: catalog_pb2.Table) -> dict[str, int]:
    found = {one.name: one.column_id for one in table.columns}
    return found | {f"{one.name}.{below.path}": below.field_id for one in table.columns for below in one.nested}


def live(stubs: Stubs, table_id: str, version: int | None = None) -> dict[str, int]:
    """Paths with the schema version that each was written under."""
    return {one.file.path: one.file.schema_version for one in stubs.list_files(table_id, version)}


def raises(kind: type[MetaServiceError], reason: str) -> "pytest.RaisesExc[MetaServiceError]":
    return pytest.RaisesExc(kind, check=lambda error: error.reason == reason)
