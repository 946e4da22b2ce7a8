"""Tables made without Spark, for tests of reads: files by pyarrow, commits by the client, and the rows in a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from metaservice.client import Transaction, uuid7
from metaservice.client.folder_service import open_folder
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from tests.spark.sessions import shared_session
from worker.arrow.scan.inlined_rows import content_of
from worker.base.schema import FILE_IDS
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.files.arrow_types import column_field
from worker.files.bucket_hash import row_buckets

Row = dict[str, Any]
Identity = tuple[Any, ...]
Rows = dict[Identity, Row]  # by key in a partition, or by row id

ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(20,4)": pa.decimal128(20, 4),
    "array<int>": pa.list_(pa.int32()),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
    "struct<x:int,tags:array<string>>": pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string())}),
}


class LabLake(Connection):
    """What a read asks of a lake."""

    def create(
        self,
        name: str,
        columns: Mapping[str, str],
        *,
        key: Sequence[str] = (),
        buckets: int = 2,
        partition_by: Sequence[str] = (),
        profile: str = "",
    ) -> LabTable:
        listed = [catalog_pb2.Column(name=one, type=kind, nullable=one not in key) for one, kind in columns.items()]
        meta = self.client.create_table(
            catalog_pb2.Table(
                name=name,
                columns=listed,
                primary_key=key,
                buckets=buckets if key else 0,
                partition_columns=partition_by,
                profile=profile,
                properties={"key.scope": "partition"} if key else {},
            )
        )
        return LabTable(self, meta)


class LabTable:
    """A table, what it must show at every version, and what every logical commit did."""

    inlined_each = 3  # every third file that may be is inlined; 0: none
    marks_own = True  # whether columns beside the table's have field ids, as in all but older files
    marks_parts = True  # whether elements, keys and values have them, as in all files but Spark's without the jar

    def __init__(self, lake: LabLake, meta: catalog_pb2.Table) -> None:
        self.lake = lake
        self.meta = meta
        self.rows: Rows = {}
        self.at: dict[int, Rows] = {0: {}}
        self.logical: list[int] = []
        self._written = 0
        self._inlined: dict[str, pa.Table] = {}

    @property
    def table_id(self) -> str:
        return self.meta.table_id

    @property
    def view(self) -> TableView:
        return TableView(self.lake, self.meta)

    @property
    def folder(self) -> str:
        return self.view.folder

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.meta.columns]

    def refresh(self) -> None:
        self.meta = self.lake.client.get_table(table_id=self.table_id)

    # -- writes

    def insert(self, rows: Iterable[Row], *, name: str = "f.parquet") -> int:
        """Upserts, or new rows."""
        return self.change(common_pb2.OPERATION_INSERT, upserts=list(rows), name=name)

    def update(self, images: Mapping[Identity, Row]) -> int:
        """New images of rows that are there."""
        return self.change(common_pb2.OPERATION_UPDATE, images=images)

    def delete(self, identities: Iterable[Identity]) -> int:
        return self.change(common_pb2.OPERATION_DELETE, gone=list(identities))

    def change(
        self,
        operation: common_pb2.Operation.ValueType,
        *,
        upserts: Sequence[Row] = (),
        images: Mapping[Identity, Row] | None = None,
        gone: Sequence[Identity] = (),
        scope: common_pb2.Scope | None = None,
        restore: int = 0,
        name: str = "f.parquet",
    ) -> int:
        """One commit."""
        images = images or {}
        with self._begin(operation) as txn:
            change = common_pb2.Change(table_id=self.table_id, scope=scope, restore_version=restore)
            if self.meta.primary_key:
                puts = [*upserts, *images.values()]
                change.files.extend(self._deltas(txn.txn_id, puts, [self.rows[one] for one in gone], name))
            else:
                change.files.extend(self._appends(txn.txn_id, upserts, images, name))
                change.delete_sets.extend(self._delete_sets(txn.txn_id, [*images, *gone]))
            version = int(txn.commit([change]).tables[0].version)
        if scope is not None:
            kept = self._outside(scope, self.rows)
            back = self._inside(scope, self.rows_under(restore)) if operation == common_pb2.OPERATION_RESTORE else {}
            self.rows = {**kept, **back}
        for one in gone:
            del self.rows[one]
        if self.meta.primary_key:
            self.rows |= {self.identity(row): row for row in [*upserts, *images.values()]}
        else:
            self.rows |= images
            self._number(version, upserts)
        self._done(version)
        return version

    def truncate(self) -> int:
        return self.change(common_pb2.OPERATION_TRUNCATE, scope=common_pb2.Scope(all=True))

    def overwrite(self, rows: Sequence[Row], partitions: Sequence[Row] = ()) -> int:
        return self.change(common_pb2.OPERATION_OVERWRITE, upserts=rows, scope=self._scope(partitions))

    def restore(self, version: int, partitions: Sequence[Row] = ()) -> int:
        return self.change(common_pb2.OPERATION_RESTORE, restore=version, scope=self._scope(partitions))

    def compact(self, chosen: Callable[[common_pb2.Partition], bool] = lambda _: True) -> int:
        """MAJOR, of everything or of the partitions chosen."""
        with self._begin(common_pb2.OPERATION_MAJOR_COMPACT) as txn:
            change = common_pb2.Change(table_id=self.table_id)
            files = [one.file for one in self.lake.client.list_files(self.table_id) if one.HasField("file")]
            buckets: dict[tuple[bytes, int], list[common_pb2.DataFile]] = {}
            for file in files:
                if chosen(file.partition):
                    buckets.setdefault((file.partition.SerializeToString(), file.bucket), []).append(file)
            known, places = list(self.rows.items()), self._places(self.rows.values())
            for at, (place, inputs) in enumerate(buckets.items()):
                partition, bucket = inputs[0].partition, inputs[0].bucket
                kept = dict(known[one] for one in places.get(place, ()))
                kind = common_pb2.FILE_KIND_BASE if self.meta.primary_key else common_pb2.FILE_KIND_UNSPECIFIED
                outputs = []
                if kept:
                    ids = None if self.meta.primary_key else [identity[0] for identity in kept]
                    path = f"{txn.txn_id}/c{at}.parquet"
                    outputs = [self._file(path, list(kept.values()), partition, bucket, kind, row_ids=ids)]
                change.files.extend(outputs)
                change.groups.add(
                    partition=partition,
                    bucket=bucket,
                    inputs=[one.path for one in inputs],
                    outputs=[one.path for one in outputs],
                    input_digest=b"1",
                    output_digest=b"1",
                )
            if not change.groups:
                return self.head
            version = int(txn.commit([change]).tables[0].version)
        self._done(version, logical=False)
        return version

    def minor(self) -> int:
        """MINOR of the two newest deltas of every bucket of a primary-key table that has as many."""
        entries = [one for one in self.lake.client.list_files(self.table_id) if one.HasField("file")]
        buckets: dict[tuple[bytes, int], list[common_pb2.LiveEntry]] = {}
        for one in entries:
            if one.file.kind == common_pb2.FILE_KIND_DELTA:
                buckets.setdefault((one.file.partition.SerializeToString(), one.file.bucket), []).append(one)
        with self._begin(common_pb2.OPERATION_MINOR_COMPACT) as txn:
            change = common_pb2.Change(table_id=self.table_id)
            for at, listed in enumerate(buckets.values()):
                inputs = sorted(listed, key=lambda one: one.data_version)[-2:]
                if len(inputs) < 2:
                    continue
                latest: dict[Identity, tuple[Row, int]] = {}
                for one in inputs:
                    for row, op in self._stored(one.file.path):
                        latest[self.identity(row)] = (row, op)
                file = inputs[0].file
                output = self._file(
                    f"{txn.txn_id}/m{at}.parquet",
                    [row for row, _ in latest.values()],
                    file.partition,
                    file.bucket,
                    common_pb2.FILE_KIND_DELTA,
                    ops=[op for _, op in latest.values()],
                )
                change.files.append(output)
                change.groups.add(
                    partition=file.partition,
                    bucket=file.bucket,
                    inputs=[one.file.path for one in inputs],
                    outputs=[output.path],
                    input_digest=b"1",
                    output_digest=b"1",
                )
            if not change.groups:
                return self.head
            version = int(txn.commit([change]).tables[0].version)
        self._done(version, logical=False)
        return version

    def alter(self, *changes: common_pb2.SchemaChange, rows: Callable[[Row], Row]) -> None:
        """`rows` turns a row of the old schema into one of the new."""
        self.lake.client.alter_columns(self.table_id, *changes)
        self.refresh()
        self.rows = {identity: rows(row) for identity, row in self.rows.items()}
        self._done(self.head, logical=False)

    def evolve(self, *changes: common_pb2.SchemaChange) -> None:
        """Changes of columns that leave values as they are, told by the ids."""
        self.lake.client.alter_columns(self.table_id, *changes)
        self.refresh()
        self.rows = self.rows_under(max(self.at))
        self._done(self.head, logical=False)

    @property
    def head(self) -> int:
        return int(self.lake.client.resolve_version(self.table_id).version)

    def rows_under(self, version: int, end: int | None = None) -> Rows:
        """The rows of a version under the columns of another, or of now: columns are told by their ids."""
        client = self.lake.client
        then = {one.column_id: one.name for one in client.get_table(table_id=self.table_id, version=version).columns}
        now = self.meta if end is None else client.get_table(table_id=self.table_id, version=end)
        names = {one.name: then.get(one.column_id) for one in now.columns}
        return {
            identity: {name: None if old is None else row[old] for name, old in names.items()}
            for identity, row in self.at[version].items()
        }

    def identity(self, row: Row) -> Identity:
        return tuple(row[name] for name in [*self.meta.primary_key, *self.meta.partition_columns])

    def find(self, *values: object) -> list[Identity]:
        """The rows with these values in their first column."""
        known = {row[self.names[0]]: identity for identity, row in self.rows.items()}
        return [known[value] for value in values]

    # -- inside

    def _begin(self, operation: common_pb2.Operation.ValueType) -> Transaction:
        intent = transaction_pb2.TableIntent(table_id=self.table_id, operation=operation)
        return self.lake.client.begin([intent], txn_id=uuid7())

    def _done(self, version: int, *, logical: bool = True) -> None:
        self.at[version] = dict(self.rows)
        if logical:
            self.logical.append(version)

    def _scope(self, partitions: Sequence[Row]) -> common_pb2.Scope:
        if not partitions:
            return common_pb2.Scope(all=True)
        named = [self._partition(one) for one in partitions]
        return common_pb2.Scope(named=common_pb2.PartitionList(partitions=named))

    def _inside(self, scope: common_pb2.Scope, rows: Rows) -> Rows:
        named = list(scope.named.partitions)
        return {key: row for key, row in rows.items() if scope.all or self._partition(row) in named}

    def _outside(self, scope: common_pb2.Scope, rows: Rows) -> Rows:
        inside = self._inside(scope, rows)
        return {key: row for key, row in rows.items() if key not in inside}

    def _partition(self, row: Row) -> common_pb2.Partition:
        values = []
        for name in self.meta.partition_columns:
            value = common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)
            if row[name] is not None:
                is_float = isinstance(row[name], float)
                value = common_pb2.Value(real=row[name]) if is_float else common_pb2.Value(text=row[name])
            values.append(common_pb2.PartitionValue(column=name, value=value))
        return common_pb2.Partition(values=values)

    def _bucket(self, row: Row) -> int:
        if not self.meta.primary_key:
            return 0
        kinds = {column.name: ARROW[column.type] for column in self.meta.columns}
        key = [pa.array([row[name]], kinds[name]) for name in self.meta.primary_key]
        return int(row_buckets(key, self.meta.buckets)[0])

    def _places(self, rows: Iterable[Row]) -> dict[tuple[bytes, int], list[int]]:
        found: dict[tuple[bytes, int], list[int]] = {}
        for at, row in enumerate(rows):
            found.setdefault((self._partition(row).SerializeToString(), self._bucket(row)), []).append(at)
        return found

    def _deltas(self, txn_id: str, puts: Sequence[Row], gone: Sequence[Row], name: str) -> list[common_pb2.DataFile]:
        rows, ops = [*puts, *gone], [0] * len(puts) + [1] * len(gone)
        return [
            self._file(
                f"{txn_id}/{number}/{name}",
                [rows[at] for at in places],
                self._partition(rows[places[0]]),
                bucket,
                common_pb2.FILE_KIND_DELTA,
                ops=[ops[at] for at in places],
                may_inline=True,
            )
            for number, ((_, bucket), places) in enumerate(self._places(rows).items())
        ]

    def _appends(
        self, txn_id: str, rows: Sequence[Row], images: Mapping[Identity, Row], name: str
    ) -> list[common_pb2.DataFile]:
        listed = [*rows, *images.values()]
        ids = [None] * len(rows) + [identity[0] for identity in images]
        files = []
        for number, places in enumerate(self._places(listed).values()):
            own = [ids[at] for at in places]
            files.append(
                self._file(
                    f"{txn_id}/{number}/{name}",
                    [listed[at] for at in places],
                    self._partition(listed[places[0]]),
                    0,
                    common_pb2.FILE_KIND_UNSPECIFIED,
                    row_ids=own if images else None,
                    may_inline=True,
                )
            )
        return files

    def _delete_sets(self, txn_id: str, identities: Sequence[Identity]) -> list[common_pb2.DeleteSet]:
        found: dict[bytes, list[int]] = {}
        for identity in identities:
            found.setdefault(self._partition(self.rows[identity]).SerializeToString(), []).append(identity[0])
        sets = []
        live = [each.file for each in self.lake.client.list_files(self.table_id) if each.HasField("file")]
        for number, (partition, ids) in enumerate(found.items()):
            one = common_pb2.DeleteSet(path=f"{txn_id}/ds{number}", rows=len(ids), bitmap=BitMap64(ids).serialize())
            one.partition.ParseFromString(partition)
            one.touches.extend(each.path for each in live if each.partition == one.partition)
            sets.append(one)
        return sets

    def _number(self, version: int, rows: Sequence[Row]) -> None:
        """The ids that the service gave to new rows, by the files they are in."""
        firsts = {
            one.file.path.split("/")[1]: one.file.first_row_id
            for one in self.lake.client.list_files(self.table_id, version=version)
            if one.HasField("file") and one.added_version == version
        }
        listed = list(rows)
        for number, places in enumerate(self._places([*listed]).values()):
            for position, at in enumerate(places):
                self.rows[(firsts[str(number)] + position,)] = listed[at]

    def _file(
        self,
        path: str,
        rows: Sequence[Row],
        partition: common_pb2.Partition,
        bucket: int,
        kind: common_pb2.FileKind.ValueType,
        *,
        ops: Sequence[int] | None = None,
        row_ids: Sequence[int | None] | None = None,
        may_inline: bool = False,
    ) -> common_pb2.DataFile:
        fields, columns = [], []
        for column in self.meta.columns:
            metadata = {"PARQUET:field_id": str(column.column_id)}
            arrow = column_field(column).type
            arrow = arrow if self.marks_parts else _as_spark(arrow)
            fields.append(pa.field(column.name, arrow, metadata=metadata))
            columns.append(pa.array([row[column.name] for row in rows], arrow))
        if ops is not None:
            fields.append(pa.field("_op", pa.int8(), metadata=self._id_of("_op")))
            columns.append(pa.array(ops, pa.int8()))
        if row_ids is not None:
            fields.append(pa.field("_row_id", pa.int64(), metadata=self._id_of("_row_id")))
            columns.append(pa.array(row_ids, pa.int64()))
        stored = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        file = common_pb2.DataFile(path=path, partition=partition, bucket=bucket, kind=kind, rows=len(rows))
        self._written += 1
        if may_inline and self.inlined_each and self._written % self.inlined_each == 0:
            self._inlined[path] = stored
            file.content = content_of(stored)
            file.bytes = len(file.content)
        else:
            target = Path(self.folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(stored, target)
            file.bytes = target.stat().st_size
        if row_ids is not None:
            known = [one for one in row_ids if one is not None]
            file.carries_row_ids = True
            if known:
                file.row_id_min, file.row_id_max = min(known), max(known)
        return file

    def _id_of(self, name: str) -> dict[str, str] | None:
        return {"PARQUET:field_id": str(FILE_IDS[name])} if self.marks_own else None

    def _stored(self, path: str) -> list[tuple[Row, int]]:
        """The rows of a file under the columns of now, and what each does."""
        stored = self._inlined[path] if path in self._inlined else pq.read_table(Path(self.folder) / path)
        names = {(one.metadata or {}).get(b"PARQUET:field_id"): one.name for one in stored.schema}
        known = {column.name: names.get(str(column.column_id).encode()) for column in self.meta.columns}
        return [
            ({name: None if old is None else row[old] for name, old in known.items()}, row["_op"])
            for row in stored.to_pylist()
        ]


def _as_spark(kind: pa.DataType) -> pa.DataType:
    """The type without ids where Spark writes none."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _as_spark(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_as_spark(kind.key_type), _as_spark(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(at).with_type(_as_spark(kind.field(at).type)) for at in range(kind.num_fields)])
    return kind


def shown(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def expected(table: LabTable, version: int, names: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
    names = names or table.names
    return sorted((tuple(row[name] for name in names) for row in table.at[version].values()), key=repr)


def versions_of(table: LabTable) -> list[read_pb2.Version]:
    return list(table.lake.client.list_versions(table.table_id))


def union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, frames)


@contextmanager
def open_lab(folder: Path, spark: SparkSession | None = None) -> Iterator[LabLake]:
    """A lake of its own."""
    with LabLake(open_folder(folder), str(folder), spark or shared_session(), uri=str(folder)) as lake:
        yield lake
