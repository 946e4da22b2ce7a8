"""What a client does to one table of a transaction: it looks at a version, and makes a change of what it saw."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from tests.histories import wire
from tests.histories.history import INSERT, MAJOR, MINOR, OVERWRITE, ROWS, Image, Part, Row, Search
from tests.histories.wire import PARTITIONS, Seen, Stored, Table, Told

BASE, DELTA, PLAIN = common_pb2.FILE_KIND_BASE, common_pb2.FILE_KIND_DELTA, common_pb2.FILE_KIND_UNSPECIFIED
KINDS = {
    "insert": (INSERT, common_pb2.OPERATION_INSERT),
    "insert count": (INSERT, common_pb2.OPERATION_INSERT),
    "update": (ROWS, common_pb2.OPERATION_UPDATE),
    "update from count": (ROWS, common_pb2.OPERATION_UPDATE),
    "delete": (ROWS, common_pb2.OPERATION_DELETE),
    "read": (ROWS, common_pb2.OPERATION_UPDATE),
    "overwrite": (OVERWRITE, common_pb2.OPERATION_OVERWRITE),
    "truncate": (OVERWRITE, common_pb2.OPERATION_TRUNCATE),
    "restore": (OVERWRITE, common_pb2.OPERATION_RESTORE),
    "minor": (MINOR, common_pb2.OPERATION_MINOR_COMPACT),
    "major": (MAJOR, common_pb2.OPERATION_MAJOR_COMPACT),
}
ALONE = (
    *("insert", "insert", "insert count", "update", "update", "update from count", "delete", "delete"),
    *("overwrite", "truncate", "restore", "major", "major", "minor"),
)
TOGETHER = (  # first table, second table
    ("read", "insert"),
    ("read", "insert"),
    ("read", "update"),
    ("insert", "insert"),
    ("insert", "restore"),
    ("insert", "read"),
    ("update", "delete"),
    ("insert count", "update from count"),
)
KEYS = range(8)


@dataclass
class Action:
    """One table's part of a transaction, while it is made."""

    rng: random.Random
    told: Told
    table: Table
    name: str
    txn_id: str
    part: Part
    entries: Sequence[common_pb2.LiveEntry]
    change: common_pb2.Change

    def make(self) -> None:
        self.seen = wire.visible(self.table, self.entries)
        self.files = 0
        MAKERS[self.name](self)

    # -- rows ----------------------------------------------------------------------------------------------------

    def new_search(self) -> Search:
        low = self.rng.choice((0, 0, 3, 6))
        return Search(self.rng.choice((None, *PARTITIONS, *PARTITIONS)), low, low + self.rng.choice((3, 9)))

    def search(self, *, changes_all: bool) -> dict[Row, Seen]:
        asked = self.new_search()
        self.part.searches += (asked,)
        self.change.reads.add(predicate=wire.predicate(asked), changes_all=changes_all)
        return {row: seen for row, seen in self.seen.items() if asked.matches(row, seen.image)}

    def image(self, value: int | None = None) -> Image:
        return f"{self.txn_id}#{self.told.next()}", self.rng.randrange(10) if value is None else value % 10

    def new_row(self) -> Row:
        identity = self.rng.choice(KEYS) if self.table.keyed else self.told.next()
        return self.rng.choice(PARTITIONS), str(identity)

    def put(self, rows: Mapping[Row, Image], kind: common_pb2.FileKind.ValueType) -> None:
        """New rows, or images of rows that were there: these keep their ids."""
        gone = [row for row in self.part.hides if row not in rows] if self.table.keyed else []
        places: dict[tuple[str, int], list[Stored]] = {}
        for row in [*rows, *gone]:
            kept = self.seen[row].row_id if row in self.part.hides and not self.table.keyed else None
            stored = Stored(row[1], rows.get(row), kept)
            places.setdefault((row[0], wire.bucket_of(self.table, row[1])), []).append(stored)
        for place, stored_rows in places.items():
            self.add_file(place, stored_rows, kind if self.table.keyed else PLAIN)
            if self.table.keyed and kind == DELTA and self.rng.random() < 0.7:
                keys = [int(stored.identity) for stored in stored_rows]
                self.change.key_sets.add(partition=wire.partition_of(place[0]), bucket=place[1], hashes=keys)
        self.part.puts.update(rows)

    def add_file(
        self, place: tuple[str, int], rows: Sequence[Stored], kind: common_pb2.FileKind.ValueType
    ) -> common_pb2.DataFile:
        self.files += 1
        path = f"{self.txn_id}/{self.table.name}-{self.files}"
        file = wire.data_file(self.table, path, place, rows, kind)
        self.change.files.append(file)
        return file

    def hide(self, rows: Mapping[Row, Seen]) -> None:
        self.part.hides.update({row: seen.image for row, seen in rows.items()})
        if self.table.keyed:
            return
        for partition in sorted({row[0] for row in rows}):
            here = [seen for row, seen in rows.items() if row[0] == partition]
            hidden = self.change.delete_sets.add(
                path=f"{self.txn_id}/{self.table.name}-gone-{partition}",
                partition=wire.partition_of(partition),
                bitmap=BitMap64([seen.row_id for seen in here]).serialize(),
            )
            if self.rng.random() < 0.5:  # else it says nothing
                hidden.touches.extend(sorted({seen.path for seen in here}))


# -- the actions -------------------------------------------------------------------------------------------------------


def insert(me: Action) -> None:
    me.put({me.new_row(): me.image() for _ in range(me.rng.randint(1, 4))}, DELTA)


def insert_count(me: Action) -> None:
    found = me.search(changes_all=False)
    me.put({me.new_row(): me.image(len(found))}, DELTA)


def update(me: Action) -> None:
    found = me.search(changes_all=True)
    me.hide(found)
    me.put({row: me.image() for row in found}, DELTA)


def update_from_count(me: Action) -> None:
    found, counted = me.search(changes_all=True), me.search(changes_all=False)
    me.hide(found)
    me.put({row: me.image(len(counted)) for row in found}, DELTA)


def delete(me: Action) -> None:
    me.hide(me.search(changes_all=True))
    me.put({}, DELTA)


def read(me: Action) -> None:
    me.search(changes_all=False)


def overwrite(me: Action) -> None:
    partition = me.rng.choice(PARTITIONS)
    me.part.scope = frozenset({partition})
    me.change.scope.named.partitions.append(wire.partition_of(partition))
    count = len(me.search(changes_all=False)) if me.rng.random() < 0.4 else None
    if me.name == "overwrite":
        me.put({(partition, me.new_row()[1]): me.image(count)}, BASE)


def restore(me: Action) -> None:
    me.part.scope = frozenset(PARTITIONS)
    me.part.restores = me.change.restore_version = me.rng.randint(0, me.part.read_version)
    me.change.scope.all = True


def compact(me: Action) -> None:
    """A MAJOR takes all files of a bucket; a MINOR, in append tables alone, some."""
    by_place: dict[tuple[str, int], list[common_pb2.DataFile]] = {}
    for live in me.entries:
        if live.HasField("file"):
            by_place.setdefault((wire.name_of(live.file.partition), live.file.bucket), []).append(live.file)
    if not by_place:
        return
    place = me.rng.choice(sorted(by_place))
    files = by_place[place]
    if me.name == "minor":
        files = me.rng.sample(files, me.rng.randint(1, len(files)))
    paths = {file.path for file in files}
    rows = [(row, seen) for row, seen in me.seen.items() if row[0] == place[0] and seen.path in paths]
    stored = [Stored(row[1], seen.image, None if me.table.keyed else seen.row_id) for row, seen in rows]
    outputs = [me.add_file(place, stored, BASE if me.table.keyed else PLAIN)] if stored else []
    me.change.groups.add(
        partition=wire.partition_of(place[0]),
        bucket=place[1],
        inputs=sorted(paths),
        outputs=[file.path for file in outputs],
    )
    me.part.compacts = frozenset({place[0]})


MAKERS: Mapping[str, Callable[[Action], None]] = {
    "insert": insert,
    "insert count": insert_count,
    "update": update,
    "update from count": update_from_count,
    "delete": delete,
    "read": read,
    "overwrite": overwrite,
    "truncate": overwrite,
    "restore": restore,
    "minor": compact,
    "major": compact,
}
