"""Types, values, bounds and duplicates: what the worker works out without Spark."""

import io
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from metaservice.core.table import types as core_types
from metaservice.core.table.types import folded
from metaservice.shared import column_types
from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.values import TEXT_CHARS_MAX, micros, moment_of, partition, raw_value, wire_value
from worker.commit.conflict_policies import policy_for
from worker.files.footers import column_stats, list_parquet
from worker.files.storage import storage
from worker.spark.column_types import ATOMIC, FIELD_ID, parse_type, type_text

PLAIN = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
ODD = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]), min_size=1, max_size=8)
NAMES = st.one_of(PLAIN, ODD, st.sampled_from(["a b", "a.b", "`", "``a", "x:int", "<", ",", "größe"])).map(
    quoted_if_odd
)
TYPES = st.recursive(
    st.one_of(st.sampled_from(sorted(ATOMIC)), st.integers(1, 38).map(lambda p: f"decimal({p},{p // 2})")),
    lambda inner: st.one_of(
        inner.map(lambda one: f"array<{one}>"),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(
            st.tuples(NAMES, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda one: folded(one[0])
        ).map(lambda fields: f"struct<{','.join(f'{n}:{k}' + (' not null' if r else '') for n, k, r in fields)}>"),
    ),
    max_leaves=6,
)


@given(TYPES)
def test_types_survive_the_way_to_spark_and_back(text: str) -> None:
    assert type_text(parse_type(text)) == text
    kind = core_types.parse_type(text)  # the service reads the same
    assert column_types.type_text(kind) == text
    numbered = core_types.with_new_ids(kind, count(1).__next__)
    found = parse_type(text, dict(core_types.nested_ids(numbered)))
    assert fields_in(found) == numbered_in(numbered)


def numbered_in(kind: column_types.Type) -> list[int]:
    """The ids of fields of structs, parents first."""
    match kind:
        case column_types.Struct(fields):
            return [one for field in fields for one in (field.field_id, *numbered_in(field.kind))]
        case column_types.Array(element):
            return numbered_in(element)
        case column_types.Map(key, value):
            return numbered_in(key) + numbered_in(value)
        case _:
            return []


def fields_in(kind: DataType) -> list[int]:
    """As `numbered_in`."""
    match kind:
        case StructType():
            return [one for field in kind.fields for one in (field.metadata[FIELD_ID], *fields_in(field.dataType))]
        case ArrayType():
            return fields_in(kind.elementType)
        case MapType():
            return fields_in(kind.keyType) + fields_in(kind.valueType)
        case _:
            return []


def test_nested_fields_get_their_ids() -> None:
    found = parse_type("array<struct<k:string not null>>", {"element": 3, "element.k": 4})
    assert isinstance(found, ArrayType)
    assert isinstance(found.elementType, StructType)
    assert found.elementType["k"].metadata == {FIELD_ID: 4}


@given(st.text(max_size=200), st.text(max_size=200))
def test_bounds_of_texts_hold_when_cut(one: str, other: str) -> None:
    low, high = sorted([one, other], key=str.encode)
    smallest, was_cut = raw_value(low.encode(), "string", is_max=False)
    largest, _ = raw_value(high.encode(), "string", is_max=True)
    assert smallest is not None
    assert smallest.text.encode() <= low.encode()
    assert was_cut == (len(low) > TEXT_CHARS_MAX)
    assert largest is None or largest.text.encode() >= high.encode()


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001
def test_moments_survive(naive: datetime) -> None:
    moment = naive.replace(tzinfo=UTC)
    assert moment_of(micros(moment, "timestamp", None)) == moment
    assert moment_of(micros(naive, "timestamp_ntz", None)) == moment


def test_values_of_people() -> None:
    assert wire_value("2026-11-01", "date").date == (date(2026, 11, 1) - date(1970, 1, 1)).days
    assert wire_value("-1.50", "decimal(10,2)").decimal == "-1.50"
    assert wire_value(None, "int").WhichOneof("kind") == "null"
    for value, kind in (("x", "int"), ("2026-13-01", "date"), ("maybe", "boolean"), ("1e", "decimal(3,1)")):
        with pytest.raises(InputError, match="VALUE_INVALID"):
            wire_value(value, kind)


def test_a_partition_names_all_its_columns() -> None:
    columns = [catalog_pb2.Column(name="day", type="date"), catalog_pb2.Column(name="n", type="int")]
    meta = catalog_pb2.Table(name="t", columns=columns, partition_columns=["day", "n"])
    assert [one.column for one in partition(meta, {"n": 1, "day": None}, None).values] == ["day", "n"]
    with pytest.raises(InputError, match="PARTITION_INVALID"):
        partition(meta, {"day": None}, None)


@pytest.mark.parametrize("values", [[1.0, float("nan")], [float("nan")], [0.0], [-0.0, 3.0], [None], [None, 2.0]])
def test_bounds_of_reals(values: list[float | None]) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), out)
    stats = column_stats(pq.read_metadata(out), 0, catalog_pb2.Column(name="x", type="double", column_id=1))
    assert stats is not None
    assert stats.nulls == values.count(None)
    for value in values:
        if value is not None and stats.HasField("min") and value == value:
            assert stats.min.real <= value <= stats.max.real
    if any(value != value for value in values):
        assert not any(stats.HasField(name) and getattr(stats, name).real != 1.0 for name in ("min", "max"))
    if values == [0.0]:
        assert str(stats.min.real) == "-0.0"


def test_policies() -> None:
    silent, says = catalog_pb2.Table(), catalog_pb2.Table(properties={"write.on_conflict": "resubmit"})
    assert [policy_for(None, silent, is_blind=one) for one in (True, False)] == ["resubmit", "fail"]
    assert [policy_for(None, says, is_blind=one) for one in (True, False)] == ["resubmit", "fail"]
    auto = catalog_pb2.Table(properties={"write.on_conflict": "auto"})
    assert [policy_for(None, auto, is_blind=one) for one in (True, False)] == ["resubmit", "fail"]
    assert [policy_for(None, None, is_blind=one) for one in (True, False)] == ["resubmit", "fail"]
    for policy in ("fail", "rerun"):
        assert {policy_for(policy, meta, is_blind=one) for meta in (silent, says) for one in (True, False)} == {policy}
    for asked in ("again", "resubmit"):
        with pytest.raises(InputError, match="POLICY_INVALID"):
            policy_for(asked, silent, is_blind=False)


def test_paths_and_uris_open_the_same_files(tmp_path: Path) -> None:
    for path in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        files, inside = storage(path)
        assert (isinstance(files, fs.LocalFileSystem), inside) == (True, str(tmp_path))


def test_what_a_job_left_behind_is_no_file(tmp_path: Path) -> None:
    """Attempts that were not committed lie in _temporary; Hadoop's own files have a dot or a line in front."""
    for name in (
        "a.parquet",
        "_part=1/b.parquet",
        "_temporary/0/_temporary/attempt_1/c.parquet",
        ".a.parquet.crc",
        "_d.parquet",
        ".e.parquet",
        "_SUCCESS",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = [info.path for info in list_parquet(fs.LocalFileSystem(), str(tmp_path))]
    assert found == [f"{tmp_path}/_part=1/b.parquet", f"{tmp_path}/a.parquet"]


def test_null_is_a_value_of_a_partition() -> None:
    assert wire_value(None, "string") == common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)
