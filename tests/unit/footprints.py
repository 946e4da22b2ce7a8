"""Random footprints of commits, and tables with next to nothing in them."""

import random
from dataclasses import replace

from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import (
    Entry,
    FileKind,
    Footprint,
    Live,
    Operation,
    Principal,
    Removed,
)
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.rows import NOTHING_KNOWN, UNKNOWN_WRITTEN, Payloads, Written

WHO = Principal("tests", "")
APPEND = TableMeta("t", "t", Partitioning((("p", "int"),)), (), 0, Profile.MAXCOMPUTE, 1, {}, frozenset(), "", (), 0)
KEYED = replace(APPEND, primary_key=("id",), buckets=2)
OPERATIONS = [Operation.INSERT, *(one for one in Operation if one is not Operation.CREATE)]
PLACES = ["p=1", "p=2"]


class Empty:
    """Nothing is live but one external file."""

    def live(self, _version: int, _partition: str | None = None, _bucket: int | None = None) -> list[Live]:
        return []

    def find(self, _version: int, partition: str, bucket: int, path: str) -> Live | None:
        found = Entry(path, partition, 0, FileKind.APPEND, 10, 100, b"")
        return Live(found, 1, 1) if path == "ext/0" and not bucket else None

    def find_imports(self, path: str) -> list[Live]:
        return [live for place in PLACES if (live := self.find(1, place, 0, path)) is not None]

    def wrote(self, _version: int) -> Written:
        return UNKNOWN_WRITTEN

    @property
    def payloads(self) -> Payloads:
        return NOTHING_KNOWN


def footprint(rng: random.Random, version: int) -> Footprint:
    operation = rng.choice(OPERATIONS)
    place = rng.choice(PLACES)
    blind = operation in (Operation.INSERT, Operation.ALTER)
    return Footprint(
        version,
        version,
        f"w{version}",
        operation,
        WHO,
        frozenset({place}),
        ((f"x/{version}", place, rng.randrange(2)),),
        () if blind else (Removed("x/0", place, 0, 1, 1, 10, 100, False, True),),
        blind=blind,
        metadata_changed=operation is Operation.ALTER and rng.random() < 0.5,
        altered=operation is Operation.ALTER,
        app_ids=("a",) if rng.random() < 0.3 else (),
    )
