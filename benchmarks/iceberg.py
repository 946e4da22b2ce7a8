"""What readers of Iceberg wait for, through the REST catalog. `make bench-iceberg`; JSON and SCALE as for bench-commit.

ARGS choose: `load` (a table of many files), `plan` (a scan of one partition of it, planned by the catalog and by
pyiceberg from manifests), `upsert` (loadTable of a primary-key table after an upsert), `visible` (a
commit, until pyiceberg sees it, beside its own SQL catalog),
`read` (DuckDB and polars through the catalog, over the same Parquet files read directly, and with deleted rows over a
table that Spark-Iceberg wrote), `append` (pyiceberg through the catalog, over pyiceberg with its own
SQL catalog; each writer is a process; to tables that keep the snapshot required, and to those with
`iceberg.append_rebase`).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import polars as pl
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.peers.iceberg_appends import ROWS as ROWS_A_COMMIT
from benchmarks.peers.iceberg_appends import Appended, append
from benchmarks.turns import interleaved, over
from benchmarks.words import chosen
from laketx import Lake, Table, connect
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.iceberg.engines.environment import SPARK_SETTINGS, ensure_spark
from tests.iceberg.readers import duckdb_of_iceberg
from worker.services.deletion_vectors import VectorKeeper

FILES: Final = 100_000
FILES_A_COMMIT: Final = 1_000
ROWS: Final = 10_000_000
BUCKETS: Final = 16
PARTS: Final = 10
RUNS: Final = 5
READS: Final = 15
ASKED: Final = "SELECT count(*), sum(id), sum(v), max(note) FROM"
PEER: Final = Path(__file__).parent / "peers" / "write_iceberg_spark.py"
Reads = Mapping[str, Callable[[], Sequence[Any]]]
EPOCH: Final = date(1970, 1, 1).toordinal()
APPEND_S: Final = 10.0
APPEND_RUNS: Final = 3
PATH: Final = "/v1/v3/namespaces/default/tables"
NONE: Final[Mapping[str, str]] = {}
RETRIED: Final = {"commit.retry.num-retries": "4"}  # as Iceberg's own default
REBASED: Final = {"iceberg.append_rebase": "true"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def catalog(folder: Path) -> Iterator[str]:
    """A REST catalog in a process of its own: its address."""
    words = ["--folder", str(folder), "iceberg", "serve", "--listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "metaservice.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


# -- a table of many files


def register(table: Table, numbers: range) -> None:
    """A commit of files that are not there: their metadata is all that is asked for."""
    ids = {one.name: one.column_id for one in table.meta.columns}
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)
    with table.view.client.begin([intent]) as txn:
        files = []
        for at in numbers:
            file = common_pb2.DataFile(path=f"{txn.txn_id}/{at}.parquet", rows=1_000, bytes=100_000)
            file.partition.values.add(column="day", value=common_pb2.Value(date=20_000 + at % 100))
            low, high = common_pb2.Value(integer=1_000 * at), common_pb2.Value(integer=1_000 * at + 999)
            file.stats.add(column_id=ids["id"], nulls=0, min=low, max=high)
            low, high = common_pb2.Value(text=f"a{at}"), common_pb2.Value(text=f"b{at}")
            file.stats.add(column_id=ids["note"], nulls=0, min=low, max=high)
            files.append(file)
        txn.commit([common_pb2.Change(table_id=table.table_id, files=files)])


def many_files(lake: Lake) -> tuple[Table, int]:
    table = lake.create_table("many", "id bigint, day date, note string", partition_by=["day"])
    count = scaled(FILES)
    say(f"{count:,} files")
    for begin in range(0, count, FILES_A_COMMIT):
        register(table, range(begin, min(begin + FILES_A_COMMIT, count)))
    return table, count


def plans(bench: Benchmark, lake: Lake, folder: Path) -> None:
    _, count = many_files(lake)
    wanted = f"day = '{date.fromordinal(EPOCH + 20_000)}' and id >= 0"
    with catalog(folder) as url:
        listed: dict[str, list[float]] = {}
        files: set[int] = set()
        for mode in ("client", "server"):
            found = load_catalog("lake", type="rest", uri=url, warehouse="v3", **{"scan-planning-mode": mode})
            scan = found.load_table("default.many").scan(row_filter=wanted)

            def planned(scan: Any = scan) -> None:
                files.add(len(list(scan.plan_files())))

            planned()
            listed[mode] = [timed(planned) * 1e3 for _ in range(RUNS)]
    assert len(files) == 1, files
    bench.add(
        f"a scan of one partition of {count:,} files ({files.pop():,}), planned by the catalog",
        listed["server"],
        unit="ms",
        peers={"pyiceberg, by manifests": statistics.median(listed["client"])},
    )


def loads(bench: Benchmark, lake: Lake, folder: Path) -> None:
    table, count = many_files(lake)
    first: list[float] = []
    made: list[float] = []
    later: list[float] = []
    for run in range(3):
        with catalog(folder) as url, httpx.Client(base_url=url, timeout=600) as client:

            def load(client: httpx.Client = client) -> None:
                assert client.get(f"{PATH}/many").status_code == 200

            first.append(timed(load))
            made += [timed(load) * 1e3 for _ in range(RUNS)]
            for at in range(RUNS):
                number = count + run * RUNS + at
                register(table, range(number, number + 1))
                later.append(timed(load) * 1e3)
    bench.add(f"loadTable of {count:,} files, not yet made", first, unit="s", at_most=5)
    bench.add("the same, made", made, unit="ms", at_most=20)
    bench.add("the same, after one commit more", later, unit="ms", at_most=100)


def upserts(bench: Benchmark, lake: Lake, folder: Path) -> None:
    """loadTable after an upsert of 1 % of a primary-key table: before a worker keeps its vectors, and after that."""
    table = lake.create_table("keyed", "id bigint, v double, note string", primary_key=["id"], buckets=BUCKETS)
    count = scaled(ROWS)
    ids = np.arange(count)
    table.upsert(pa.table({"id": ids, "v": ids * 0.5, "note": pa.repeat("some text", count)}))
    keeper = VectorKeeper(lake, now_s=lambda: 0.0)
    found: dict[bool, list[float]] = {False: [], True: []}
    with catalog(folder) as url, httpx.Client(base_url=url, timeout=600) as client:
        for run in range(2 * RUNS + 2):
            some = ids[run::100]
            table.upsert(pa.table({"id": some, "v": some * 1.5, "note": pa.repeat("other text", len(some))}))
            is_kept = run % 2 == 1
            if is_kept:
                keeper.run_once()
            begin = time.perf_counter()
            assert client.get(f"{PATH}/keyed").status_code == 200
            if run >= 2:
                found[is_kept].append(time.perf_counter() - begin)
    bench.add(f"loadTable of {count:,} rows with a key, after an upsert of 1 %", found[False], unit="s")
    bench.add("the same, deletion vectors kept", found[True], unit="s", at_most=0.3)


# -- a commit, until a reader sees it


def visible(bench: Benchmark, lake: Lake, folder: Path) -> None:
    rows = pa.table({"id": np.arange(1_000), "note": ["x"] * 1_000})
    table = lake.create_table("seen", "id bigint, note string", properties={"write.inline.rows": "0"})
    place = folder / "peer"
    place.mkdir()
    writer = SqlCatalog("sql", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    writer.create_namespace("default")
    peer = writer.create_table("default.seen", rows.schema)
    with catalog(folder) as url:
        ours = load_catalog("lake", type="rest", uri=url, warehouse="v3").load_table("default.seen")
        theirs = SqlCatalog("sql", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}").load_table(
            "default.seen"
        )

        def wait(reader: Any) -> float:
            return timed(lambda: reader.refresh().scan().to_arrow())

        figures: list[float] = []
        own: list[float] = []
        for _ in range(2 * RUNS):
            table.append(rows)
            figures.append(wait(ours))
            peer.append(rows)
            own.append(wait(theirs))
    more = [ours_s - own_s for ours_s, own_s in zip(figures[RUNS:], own[RUNS:], strict=True)]
    bench.add("a commit, until pyiceberg has its rows: more than its SQL catalog", more, unit="s", at_most=0.2)


# -- reads


def reads(bench: Benchmark, lake: Lake, folder: Path) -> None:
    count = scaled(ROWS)
    table = lake.create_table("large", "id bigint, v double, note string", properties={"write.inline.rows": "0"})
    say(f"{count:,} rows")
    for part in range(PARTS):
        ids = np.arange(part, count, PARTS)
        notes = np.char.add("n", (ids % 1_000).astype(str))
        table.append(pa.table({"id": ids, "v": np.sqrt(ids), "note": notes}))
    paths = [f"{table.view.folder}/{one.file.path}" for one in table.view.client.list_files(table.table_id)]
    with catalog(folder) as url, duckdb_of_iceberg() as connection:
        connection.execute(f"ATTACH 'v3' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
        shown = load_catalog("lake", type="rest", uri=url, warehouse="v3")
        ours: Reads = {
            "DuckDB": lambda: connection.execute(f"{ASKED} lake.default.large").fetchall()[0],
            "polars": lambda: _summed(pl.scan_iceberg(shown.load_table("default.large"))),
        }
        direct: Reads = {
            "DuckDB": lambda: connection.execute(f"{ASKED} read_parquet({paths})").fetchall()[0],
            "polars": lambda: _summed(pl.scan_parquet(paths)),
        }
        beside(bench, f"{count:,} rows: through the catalog over directly", ours, direct, at_most=1.15)
        condition = "note IN ({})".format(", ".join(f"'n{number}'" for number in range(7, 1_000, 100)))
        table.delete(condition)
        peer = written_by_spark(folder / "peer", paths, condition)
        theirs: Reads = {
            "DuckDB": lambda: connection.execute(f"{ASKED} iceberg_scan('{peer}')").fetchall()[0],
            "polars": lambda: _summed(pl.scan_iceberg(StaticTable.from_metadata(peer))),
        }
        beside(bench, f"{count:,} rows, 1 % deleted: over a table by Spark-Iceberg", ours, theirs, at_most=1.1)


def beside(bench: Benchmark, work: str, ours: Reads, others: Reads, at_most: float) -> None:
    """Ratios of one read to another with the same answer, in turns."""
    for engine, through in ours.items():
        other = others[engine]
        assert [round(one) if isinstance(one, float) else one for one in through()] == [
            round(one) if isinstance(one, float) else one for one in other()
        ], (engine, work)
        times = interleaved({"through": through, "other": other}, runs=READS)
        bench.add(f"{engine}, {work}", over(times["through"], times["other"]), unit="times", at_most=at_most)


def written_by_spark(folder: Path, paths: Sequence[str], condition: str) -> str:
    """The metadata of a table that Spark-Iceberg wrote from the files, and then deleted from."""
    folder.mkdir()
    request = folder / "request.json"
    asked = {"settings": SPARK_SETTINGS, "warehouse": f"{folder}/warehouse", "files": paths, "condition": condition}
    request.write_text(json.dumps(asked))
    say("Spark-Iceberg writes the same rows")
    command = [str(ensure_spark()), str(PEER), str(request)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]


def _summed(rows: pl.LazyFrame) -> Sequence[Any]:
    return rows.select(pl.len(), pl.col("id").sum(), pl.col("v").sum(), pl.col("note").max()).collect().row(0)


# -- appends


def appends(bench: Benchmark, lake: Lake, folder: Path) -> None:
    """Where the table keeps the snapshot that a writer requires, all but one of those that meet try again."""
    place = folder / "peer"
    place.mkdir()
    for writers, at_least in ((1, 1.0), (16, 3.0)):
        theirs: list[Appended] = []
        kept: list[Appended] = []
        rebased: list[Appended] = []
        for run in range(APPEND_RUNS):
            name = f"default.appended_{writers}_{run}"
            own = {"type": "sql", "uri": f"sqlite:///{place}/{name}.db", "warehouse": f"file://{place}"}
            load_catalog("bench", **own).create_namespace("default")
            theirs.append(appended_through(own, name, writers))
            with catalog(folder) as url:
                through = {"type": "rest", "uri": url, "warehouse": "v2"}
                kept.append(appended_through(through, name, writers, RETRIED))
                rebased.append(appended_through(through, f"{name}_rebased", writers, REBASED))
            for made, table in ((kept[-1], name), (rebased[-1], f"{name}_rebased")):
                version = lake.client.get_table(table.partition(".")[2]).head_version
                if version != made.commits:
                    raise AssertionError(f"{made.commits} appends made version {version}")
            if rebased[-1].lost:
                raise AssertionError(f"{rebased[-1].lost} appends were given up")
        said = f"SQL catalog: {statistics.median(one.rate for one in theirs):.1f} commits/s, {lost(theirs)}"
        word = "writer" if writers == 1 else "writers"
        for rule, ours, least in (("", kept, None), (", iceberg.append_rebase", rebased, at_least)):
            work = f"{writers} {word}{rule}"
            note = f"{lost(ours)}; {said}"
            bench.add(f"{work}: appends by pyiceberg", [one.rate for one in ours], unit="commits/s", note=note)
            ratios = [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]
            bench.add(f"{work}: the same over its SQL catalog", ratios, unit="times", at_least=least)


def appended_through(
    where: Mapping[str, str], name: str, writers: int, properties: Mapping[str, str] = NONE
) -> Appended:
    """Makes a table, and writers append to it for a while."""
    target = load_catalog("bench", **where)
    target.create_table(name, pa.schema([("id", pa.int64()), ("note", pa.string())]), properties=dict(properties))
    made = append(where, name, writers, APPEND_S)
    check_rows(target, name, made)
    return made


def lost(runs: Sequence[Appended]) -> str:
    return f"{sum(one.lost for one in runs)} appends given up"


def check_rows(where: Any, name: str, made: Appended) -> None:
    """Every append that was acknowledged is there, and no other."""
    rows = where.load_table(name).scan().to_arrow().num_rows
    if rows != made.commits * ROWS_A_COMMIT:
        raise AssertionError(f"{name} has {rows} rows after {made.commits} commits of {ROWS_A_COMMIT}")


WORKS: Final = {"load": loads, "upsert": upserts, "plan": plans, "visible": visible, "read": reads, "append": appends}


def main() -> int:
    names = chosen(__doc__, WORKS) or list(WORKS)
    bench = Benchmark("iceberg", "Readers of Iceberg", packages=["duckdb", "polars", "pyiceberg"])
    for one in names:
        with scratch() as folder, connect(folder) as lake:
            WORKS[one](bench, lake, folder)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
