"""Readers that hold a snapshot while commits, compactions and the purge go on: nothing goes under them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metaservice.client import MetaClient
from protos.laketx.v1 import common_pb2
from tests.arrow.tables import texts
from tests.iceberg.readers import duckdb_of_iceberg
from tests.iceberg.servers import DEFAULT, Server, catalog_of, served
from tests.integration.service import service, wait_until
from tests.spark.histories import COLUMNS, new_rows
from tests.spark.reading import LabLake, LabTable
from worker.files.warehouse import adopt
from worker.services.purge import Purge

KINDS = pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])


@dataclass(frozen=True, slots=True)
class Held:
    """What one loadTable gave out."""

    table: Any  # pyiceberg's, which keeps its metadata
    version: int


@contextmanager
def kept_for_nothing(folder: Path, *options: str, keyed: bool) -> Iterator[tuple[LabLake, LabTable, Server]]:
    """A table whose old versions are kept only for those who hold them, and a catalog that shows it."""
    files = str(folder / "files")
    with service(folder / "store", "--purge-delay-ms", "0") as (running, _):
        where = ["--server", running.address, "iceberg", "serve", "--listen", "127.0.0.1:0", "--warehouse", files]
        with LabLake(MetaClient(running.address), files, None) as lake, served(*where, *options) as server:
            adopt(lake.client, files)
            table = lake.create("t", COLUMNS, key=["id"] if keyed else [], partition_by=["day"])
            lake.client.alter_table(table.table_id, common_pb2.Alteration(set_properties={"data.retain.hours": "0"}))
            table.refresh()
            yield lake, table, server


def hold(server: Server) -> Held:
    table = catalog_of(server).load_table((DEFAULT, "t"))
    return Held(table, int(table.current_snapshot().summary["laketx.version"]))


def change(table: LabTable, chance: random.Random, *, keyed: bool) -> None:
    """One commit; half of them compact."""
    some = chance.sample(sorted(table.rows, key=repr), min(len(table.rows), chance.randint(1, 3)))
    kind = chance.choices(["insert", "update", "delete", "compact", "minor"], [3, 2, 2, 4, 2])[0]
    if kind == "compact" and table.rows:
        table.compact()
    elif kind == "minor" and keyed:
        table.minor()
    elif kind == "update" and some:
        table.update({one: {**table.rows[one], "amount": chance.random()} for one in some})
    elif kind == "delete" and some:
        table.delete(some)
    else:
        table.insert(new_rows(chance, keyed))


def check(held: Held, rows: list[dict[str, Any]]) -> None:
    """The rows of a held snapshot, by pyiceberg and by DuckDB."""
    with duckdb_of_iceberg() as connection:
        location = held.table.metadata_location
        for found in (
            held.table.scan().to_arrow(),
            connection.execute(f"SELECT * FROM iceberg_scan('{location}')").to_arrow_table(),
        ):
            names = found.schema.names
            assert texts(found) == sorted(repr(tuple(row[name] for name in names)) for row in rows), held.version


def play(folder: Path, seed: int, *, keyed: bool, steps: int) -> int:
    """Commits and purges by one thread, reads of held snapshots by another. Returns the number of purged files."""
    chance, choices = random.Random(seed), random.Random(seed + 1)
    purged = 0
    with (
        kept_for_nothing(folder, "--snapshots", "1", keyed=keyed) as (lake, table, server),
        ThreadPoolExecutor() as pool,
    ):
        table.insert(new_rows(chance, keyed))
        ended = threading.Event()

        def read() -> int:
            held: list[Held] = []
            done = 0
            while not ended.is_set() or not done:
                held.append(hold(server))
                one = choices.choice(held)
                check(one, list(table.at[one.version].values()))
                done += 1
            for one in held:
                check(one, list(table.at[one.version].values()))
            return done

        reading = pool.submit(read)
        try:
            for step in range(10 * steps):
                if step >= steps and purged:
                    break
                change(table, chance, keyed=keyed)
                purged += purge(lake, table)
        finally:
            ended.set()
        assert reading.result() > 0
    return purged


def purge(lake: LabLake, table: LabTable) -> int:
    report = Purge(lake.client, lake.warehouse).run(table.table_id)
    assert not report.failed, report.failures
    return int(report.files - report.missing)


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True], ids=["append", "keyed"])
def test_held_snapshots_stay_readable_while_all_goes_on(keyed: bool, tmp_path: Path) -> None:
    assert play(tmp_path, 1, keyed=keyed, steps=20) > 0


@KINDS
@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 15))
def test_held_snapshots_stay_readable_for_long(seed: int, keyed: bool, tmp_path: Path) -> None:
    assert play(tmp_path, seed, keyed=keyed, steps=150) > 0


def test_a_tag_that_outlives_the_retention_is_shown(tmp_path: Path) -> None:
    chance = random.Random(1)
    with kept_for_nothing(tmp_path, "--snapshots", "0", keyed=False) as (lake, table, server):
        tagged = table.insert(new_rows(chance, False))
        lake.client.create_tag(table.table_id, "kept", version=tagged)
        for _ in range(3):
            table.insert(new_rows(chance, False))
        wait_until(lambda: min(one.version for one in lake.client.list_versions(table.table_id)) > tagged)
        found = hold(server).table.scan().use_ref("kept").to_arrow()
        names = found.schema.names
        assert texts(found) == sorted(repr(tuple(row[name] for name in names)) for row in table.at[tagged].values())


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)], ids=["append", "keyed"])
def test_what_is_held_no_longer_goes(keyed: bool, tmp_path: Path) -> None:
    chance = random.Random(1)
    with kept_for_nothing(tmp_path, "--snapshots", "0", keyed=keyed) as (lake, table, server):
        table.inlined_each = 0
        table.insert(new_rows(chance, keyed))
        held = hold(server)
        paths = [Path(one.file.file_path.removeprefix("file://")) for one in held.table.scan().plan_files()]
        rows = list(table.rows.values())
        table.compact()
        table.insert(new_rows(chance, keyed))
        purge(lake, table)
        check(held, rows)
        for one in list(lake.client.list_pins()):
            lake.client.unpin(one.pin_id)
        wait_until(lambda: purge(lake, table) >= 0 and not any(path.is_file() for path in paths))
