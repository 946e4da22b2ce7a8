"""Many random histories by the front door: each job does to every case something else, told by arrays of its values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from laketx import Lake, Table
from metaservice.client import InvalidError
from tests.spark.changed_rows import difference
from tests.spark.reading import union
from worker.arrow.changes.commits import MODES
from worker.imports.parquet_files import NO_VALUE

CASES = 60
SCHEMA = "cased int, id int, day timestamp, amount bigint"
NUMBERS = SCHEMA.replace("timestamp", "bigint")
ZONE = "spark.sql.session.timeZone"
HOUR_US = 3_600_000_000
REPEATED = {  # the hour that clocks show twice begins at
    "Europe/Berlin": datetime(2026, 10, 25, tzinfo=UTC),
    "America/New_York": datetime(2026, 11, 1, 5, tzinfo=UTC),
}
Key = tuple[Any, ...]  # case, id, microseconds of the day
State = dict[Key, int | None]


class Days:
    """Partitions by timestamp: half past the hour that comes twice, both times, and past the next; and NULL."""

    def __init__(self, zone: str) -> None:
        self.zone = ZoneInfo(zone)
        self.first = int(REPEATED[zone].timestamp()) * 1_000_000 + HOUR_US // 2
        self.all = (self.first, self.first + HOUR_US, self.first + 2 * HOUR_US, None)

    def clock(self, day: int | None) -> str | None:
        """As the session's clock shows it; None where that means another instant."""
        if day is None or day == self.first + HOUR_US:
            return None
        return str(self._moment(day).replace(tzinfo=None))

    def named(self, day: int | None) -> list[Any]:
        """The ways to say it."""
        if day is None:
            return [None]
        moment = self._moment(day)
        clock = self.clock(day)
        return [moment, str(moment), moment.astimezone(UTC), *([clock, datetime.fromisoformat(clock)] if clock else [])]

    def _moment(self, day: int) -> datetime:
        return datetime.fromtimestamp(day // 1_000_000, self.zone)


def sql(value: object) -> str:
    return "NULL" if value is None else repr(value)


class Many:
    """A table, and what it holds at every version. Ids are new, or those of rows that are there."""

    def __init__(self, table: Table, seed: int, days: Days) -> None:
        self.table = table
        self.days = days
        self.chance = random.Random(seed)
        self.state: State = {}
        self.at: list[State] = [{}]
        self._next = 0

    def step(self) -> None:
        kinds = [self.insert, self.update, self.move, self.delete, self.merge, self.overwrite, self.restore]
        weights = [2, 3, 2, 2, 3, 1, 1]
        if not self.table.meta.primary_key:
            kinds, weights = [*kinds, self.import_files], [*weights, 2]
        self.chance.choices(kinds, weights)[0]()
        self.done()

    def done(self) -> None:
        self.at.append(dict(self.state))
        assert self.table.refresh().meta.head_version == len(self.at) - 1

    # -- what a job does, to each case with values of its own

    def by_case(self, choose: Callable[[], Any]) -> tuple[list[Any], str]:
        """A value for each case, and the words for that of a row's."""
        values = [choose() for _ in range(CASES)]
        return values, f"array({', '.join(map(sql, values))})[cased]"

    def bounds(self, prefix: str = "") -> tuple[Callable[[Key], bool], str]:
        low, low_text = self.by_case(lambda: self.chance.randrange(self._next + 1))
        width = max(self._next // 3, 1)
        text = f"{prefix}id between {low_text} and {low_text} + {width}".replace("[cased]", f"[{prefix}cased]")
        return lambda key: low[key[0]] <= key[1] <= low[key[0]] + width, text

    def fresh(self) -> State:
        """New rows for some cases."""
        self._next += 3
        ids = range(self._next - 3, self._next)
        return {
            (case, one, self.chance.choice(self.days.all)): self.chance.choice([0, 1, None])
            for case in range(CASES)
            for one in self.chance.sample(ids, self.chance.randrange(4))
        }

    def known(self) -> list[Key]:
        return [key for key in self.state if self.chance.random() < 0.1]

    def insert(self) -> None:
        rows = self.fresh()
        if self.table.meta.primary_key:
            rows |= dict.fromkeys(self.known(), 77)
        self.table.insert(self.frame(rows))
        self.state |= rows

    def import_files(self) -> None:
        """Files that another program wrote, where they lie; each once, whatever its path looks like."""
        rows = self.fresh()
        folder = Path(self.table.lake.warehouse).parent / "outside" / f"{self.table.table_id[:8]} {len(self.at)}"
        for day in {key[2] for key in rows}:
            mine = [(*key[:2], one) for key, one in rows.items() if key[2] == day]
            name = f"day={NO_VALUE if day is None else quote(str(self.chance.choice(self.days.named(day))))}"
            (folder / name).mkdir(parents=True)
            kinds = {"cased": pa.int32(), "id": pa.int32(), "amount": pa.int64()}
            columns = [pa.array([row[at] for row in mine], kind) for at, kind in enumerate(kinds.values())]
            pq.write_table(pa.table(dict(zip(kinds, columns, strict=True))), folder / name / "x.parquet")
        lake = self.table.lake
        assert isinstance(lake, Lake)
        lake.import_parquet(folder, self.table.name)
        self.state |= rows
        for again in (f"file:{quote(str(folder))}", folder / "." / ".." / folder.name):
            with pytest.raises(InvalidError, match="PATH_LIVE"):
                lake.import_parquet(again, self.table.name)

    def update(self) -> None:
        hits, where = self.bounds()
        plus, text = self.by_case(lambda: self.chance.randrange(5))
        self.table.update({"amount": f"amount * 2 + {text}"}, where=where)
        for key, amount in self.state.items():
            if hits(key) and amount is not None:
                self.state[key] = amount * 2 + plus[key[0]]

    def move(self) -> None:
        hits, where = self.bounds()
        days, text = self.by_case(lambda: self.chance.choice(self.days.all))
        self.table.update({"day": f"timestamp_micros({text})"}, where=where)
        self.state = {(*key[:2], days[key[0]] if hits(key) else key[2]): one for key, one in self.state.items()}

    def delete(self) -> None:
        hits, where = self.bounds()
        day = self.chance.choice(self.days.all)
        clock = self.days.clock(day)
        text = f"timestamp_micros({sql(day)})" if clock is None else f"'{clock}'"
        self.table.delete(f"{where} and day <=> {text}")
        self.state = {key: one for key, one in self.state.items() if not (hits(key) and key[2] == day)}

    def merge(self) -> None:
        old = {key: self.chance.choice([None, 5, 6]) for key in self.known()}
        new = self.fresh()
        hits, where = self.bounds("target.")
        (
            self.table.merge(self.frame(old | new), on="target.cased = source.cased and target.id = source.id")
            .when_matched_delete(condition="source.amount is null")
            .when_matched_update({"amount": "coalesce(target.amount, 0) + source.amount"})
            .when_not_matched_insert()
            .when_not_matched_by_source_update({"amount": "-1"}, condition=f"{where} and target.amount > 0")
            .when_not_matched_by_source_delete(condition=f"{where} and target.amount is null")
            .execute()
        )
        found: State = {}
        for key, one in self.state.items():
            if key in old:
                if (plus := old[key]) is not None:
                    found[key] = (one or 0) + plus
            elif not hits(key) or one == 0 or (one is not None and one < 0):
                found[key] = one
            elif one is not None:
                found[key] = -1
        self.state = found | new

    def overwrite(self) -> None:
        day = self.chance.choice(self.days.all)
        rows = {(*key[:2], day): one for key, one in self.fresh().items()}
        self.table.overwrite(self.frame(rows), partition={"day": self.chance.choice(self.days.named(day))})
        self.state = {key: one for key, one in self.state.items() if key[2] != day} | rows

    def restore(self) -> None:
        version = self.chance.randrange(len(self.at))
        self.table.restore(version=version)
        self.state = dict(self.at[version])

    def frame(self, rows: State) -> DataFrame:
        numbers = self.table.lake.spark.createDataFrame([(*key, one) for key, one in rows.items()], NUMBERS)
        return numbers.withColumn("day", sf.timestamp_micros("day")).coalesce(1)


def in_numbers(rows: DataFrame) -> DataFrame:
    """Python shows instants by the machine's clock."""
    return rows.withColumn("day", sf.unix_micros("day"))


def texts(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))


def check_versions(many: Many) -> None:
    frames = [many.table.read(version=version).select(sf.lit(version), "*") for version in range(len(many.at))]
    found: dict[int, list[tuple[Any, ...]]] = {version: [] for version in range(len(many.at))}
    for version, *row in in_numbers(union(frames)).collect():
        found[version].append(tuple(row))
    for version, state in enumerate(many.at):
        assert texts(found[version]) == texts((*key, one) for key, one in state.items()), version


def check_changes(many: Many) -> None:
    """Told by key: a row of an append table that comes back may be another one."""
    until = len(many.at) - 1
    since = many.chance.randrange(until)
    versions = [{key: {"amount": one} for key, one in state.items()} for state in many.at]
    log = [
        change
        for version in range(since + 1, until + 1)
        for change in difference(versions[version - 1], versions[version], version)
    ]
    last = {key: version for key, _, version, _ in log}
    whole = [(key, kind, last[key], row) for key, kind, _, row in difference(versions[since], versions[until], 0)]
    newest = [change for change in whole if change[1] in ("insert", "update_postimage")]
    for mode, wanted in zip(MODES, (newest, whole, log), strict=True):
        shown = in_numbers(many.table.changes(since=since, until=until, mode=mode)).drop("_commit_time").collect()
        assert texts(map(tuple, shown)) == texts((*key, row["amount"], kind, v) for key, kind, v, row in wanted), mode


def check_histories(lake: Lake, name: str, seed: int, zone: str, *, keyed: bool, steps: int) -> None:
    before = lake.spark.conf.get(ZONE)
    lake.spark.conf.set(ZONE, zone)
    try:
        play(lake, name, seed, Days(zone), keyed=keyed, steps=steps)
    finally:
        lake.spark.conf.set(ZONE, str(before))


def play(lake: Lake, name: str, seed: int, days: Days, *, keyed: bool, steps: int) -> None:
    keys = ["cased", "id"] if keyed else []
    table = lake.create_table(
        name,
        SCHEMA,
        primary_key=keys,
        buckets=2 if keyed else None,
        partition_by=["day"],
        key_scope="partition" if keyed else None,
    )
    many = Many(table, seed, days)
    many.insert()
    many.done()
    if not keyed:
        many.import_files()
        many.done()
    for _ in range(steps):
        many.step()
    check_versions(many)
    if keyed:
        check_changes(many)


@pytest.mark.parametrize(
    ("keyed", "zone"), [pytest.param(False, "Europe/Berlin", marks=pytest.mark.long), (True, "America/New_York")]
)
def test_many_histories(lake: Lake, new_name: Callable[[], str], keyed: bool, zone: str) -> None:
    check_histories(lake, new_name(), 5, zone, keyed=keyed, steps=2)


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(100, 110))
def test_more_histories(lake: Lake, new_name: Callable[[], str], seed: int, keyed: bool) -> None:
    check_histories(lake, new_name(), seed, list(REPEATED)[seed % 2], keyed=keyed, steps=15)
