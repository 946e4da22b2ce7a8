"""What a new table may say of its images, and what a file says of those in it."""

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.merge_engine import check_merge_engine, merge_engine
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Operation
from metaservice.core.table.partitions import Partitioning
from metaservice.rpc.convert.client_features import Reader
from metaservice.rpc.convert.wire_entries import data_files
from protos.laketx.storage.v1 import records_pb2
from protos.laketx.v1 import common_pb2

PARTIAL = {"merge.engine": "partial"}
TXN = "01a219dc-c6b1-7bcc-adbb-93a5c024a1a3"


def keyed_meta(properties: dict[str, str]) -> TableMeta:
    return TableMeta(
        table_id=TXN,
        name="t",
        partitioning=Partitioning(()),
        primary_key=("id",),
        buckets=1,
        profile=Profile.ROW_LEVEL,
        schema_version=1,
        properties=properties,
        features=frozenset(),
        comment="",
        columns=(),
        create_time_us=0,
        last_column_id=9,
    )


@pytest.mark.parametrize(
    ("key", "partitions", "more", "fits"),
    [
        (("id",), (), {}, True),
        (("id", "day"), ("day",), {}, True),
        (("id",), ("day",), {"key.scope": "partition"}, True),
        (("id",), ("day",), {"key.scope": "table"}, False),
        ((), (), {}, False),
        (("id",), (), {"view.query": "SELECT 1"}, False),
    ],
)
def test_images_set_single_columns_where_they_stay_in_a_partition(
    key: tuple[str, ...], partitions: tuple[str, ...], more: dict[str, str], fits: bool
) -> None:
    check_merge_engine(key, partitions, more)
    assert merge_engine(more) == "whole"
    if fits:
        check_merge_engine(key, partitions, PARTIAL | more)
        return
    with pytest.raises(MetaError) as refused:
        check_merge_engine(key, partitions, PARTIAL | more)
    assert refused.value.reason == "MERGE_ENGINE_NOT_ALLOWED"


@pytest.mark.parametrize(
    ("properties", "kind", "columns"),
    [
        ({}, common_pb2.FILE_KIND_DELTA, [1]),
        (PARTIAL, common_pb2.FILE_KIND_BASE, [1]),
        (PARTIAL, common_pb2.FILE_KIND_DELTA, [1, 1]),
        (PARTIAL, common_pb2.FILE_KIND_DELTA, [0]),
        (PARTIAL, common_pb2.FILE_KIND_DELTA, [99]),
        (PARTIAL, common_pb2.FILE_KIND_DELTA, []),
    ],
)
def test_a_file_names_columns_of_its_table(
    properties: dict[str, str], kind: common_pb2.FileKind.ValueType, columns: list[int]
) -> None:
    file = common_pb2.DataFile(
        path=f"{TXN}/f", rows=1, bytes=1, kind=kind, set_columns=columns, no_new_rows=not columns
    )
    file.partition.SetInParent()
    with pytest.raises(MetaError) as refused:
        data_files([file], keyed_meta(properties), TXN, Operation.INSERT)
    assert refused.value.reason == "SET_COLUMNS_INVALID"


def test_a_reader_that_folds_no_images_is_shown_whole_ones() -> None:
    meta = keyed_meta(PARTIAL)
    files = [common_pb2.DataFile(path="f"), common_pb2.DataFile(path="g", set_columns=[1])]
    whole, some = [records_pb2.EntryRecord(payload=file.SerializeToString()) for file in files]
    older = Reader(knows_partial=False)
    assert list(older.shown([whole], meta)) == [whole]
    assert list(Reader().shown([whole, some], meta)) == [whole, some]
    with pytest.raises(MetaError) as refused:
        list(older.shown([whole, some], meta))
    assert refused.value.reason == "PARTIAL_IMAGES"
