"""What concurrent clients did and were told, and what their tables hold by that. Pure: no service, no clock.

Worked example, one table of two rows; t1 and t2 began at version 1 and both committed:

    version 1  t0  puts x, y
    version 2  t1  found x and y, hides x       read version 1
    version 3  t2  found x and y, hides y       read version 1: y is found by nobody who came before it alone

Replayed, the log says who wrote which row when; what each transaction had found says whom it saw. `serial` makes a
graph of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Row = tuple[str, str]  # partition, identity
Image = tuple[str, int]  # who wrote it, unlike any other; the value that searches look at
Rows = Mapping[Row, Image]

OVERWRITE, INSERT, ROWS, MINOR, MAJOR = (
    "INSERT_OVERWRITE",
    "INSERT_INTO",
    "UPDATE_DELETE",
    "MINOR_COMPACT",
    "MAJOR_COMPACT",
)
COMPACTIONS = (MINOR, MAJOR)


@dataclass(frozen=True, slots=True)
class Search:
    """Rows whose value lies in a range, in one partition or in all."""

    partition: str | None = None
    low: int = 0
    high: int = 9

    def matches(self, row: Row, image: Image | None) -> bool:
        return image is not None and self.partition in (None, row[0]) and self.low <= image[1] <= self.high

    def of(self, rows: Rows) -> dict[Row, Image]:
        return {row: image for row, image in rows.items() if self.matches(row, image)}


@dataclass(slots=True)
class Part:
    """What one transaction did to one table. `scope`: partitions that it replaced; `asked_s`: when it began to read."""

    table: str
    kind: str
    read_version: int
    searches: tuple[Search, ...] = ()
    hides: dict[Row, Image] = field(default_factory=dict)
    puts: dict[Row, Image] = field(default_factory=dict)
    scope: frozenset[str] | None = None
    restores: int | None = None
    compacts: frozenset[str] = frozenset()
    asked_s: float = 0.0

    @property
    def changes_rows(self) -> bool:
        return bool(self.hides or self.puts) or self.scope is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """How a transaction ended, as its client was told. `winner`: the table and version that it lost to."""

    committed: bool
    versions: tuple[tuple[str, int], ...] = ()
    time_us: int = 0
    rule: str = ""
    winner: tuple[str, int] | None = None


@dataclass(slots=True)
class Txn:
    """A transaction, with every answer to its commit and the moment of the first."""

    txn_id: str
    parts: dict[str, Part]
    answers: list[Answer] = field(default_factory=list)
    told_s: float = 0.0

    @property
    def is_blind_append(self) -> bool:
        return all(part.kind == INSERT and not part.searches for part in self.parts.values())

    @property
    def changes_rows(self) -> bool:
        return any(part.changes_rows for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class Logged:
    """A commit, as the table's history shows it."""

    version: int
    txn_id: str
    time_us: int


@dataclass(frozen=True, slots=True)
class Looked:
    """An answer to "which version was it at this time?"."""

    table: str
    time_us: int
    version: int


@dataclass(slots=True)
class History:
    """Of tables of one profile. `shown`: what files and delete sets show, by table and version."""

    profile: str
    keyed: frozenset[str] = frozenset()
    txns: dict[str, Txn] = field(default_factory=dict)
    logs: dict[str, list[Logged]] = field(default_factory=dict)
    looks: list[Looked] = field(default_factory=list)
    shown: dict[tuple[str, int], Rows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """One row's change by one commit; None: it was not there, it is no more. Who hides a row that is gone wrote it."""

    version: int
    txn_id: str
    row: Row
    before: Image | None
    after: Image | None


@dataclass(slots=True)
class Replayed:
    """A table by its log: its rows at each version, and who wrote what."""

    states: list[dict[Row, Image]]
    writes: list[Written]


def replay(history: History, table: str) -> Replayed:
    """Each change put on top of what was there, in the order of the log."""
    found = Replayed([{}], [])
    for logged in history.logs[table][1:]:
        before = found.states[-1]
        txn = history.txns.get(logged.txn_id)
        part = None if txn is None else txn.parts.get(table)
        after = before if part is None else put_on_top(history, part, found.states)
        hides = {} if part is None else part.hides
        for row in sorted(before.keys() | after.keys() | hides.keys()):
            if before.get(row) != after.get(row) or row in hides:
                write = Written(logged.version, logged.txn_id, row, before.get(row), after.get(row))
                found.writes.append(write)
        found.states.append(after)
    return found


def put_on_top(history: History, part: Part, states: list[dict[Row, Image]]) -> dict[Row, Image]:
    """An overwrite replaces what is there at its commit; under the delta profiles what it saw."""
    if part.kind in COMPACTIONS:
        return states[-1]
    rows = dict(states[-1])
    if part.scope is not None:
        seen = states[part.read_version] if history.profile.startswith("delta") else rows
        rows = {row: image for row, image in rows.items() if row[0] not in part.scope or seen.get(row) != image}
        if part.restores is not None:
            rows |= {row: image for row, image in states[part.restores].items() if row[0] in part.scope}
    return {row: image for row, image in rows.items() if row not in part.hides} | part.puts
