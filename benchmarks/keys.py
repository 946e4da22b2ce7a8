"""What a key across partitions costs: beside one within a partition, in a large table, and beside peers.

`make bench-keys` runs all groups but `many`, ARGS="small looks" those, and `no-peers` leaves the peers out. JSON and
SCALE as elsewhere. Upserts have random keys, half of which move rows, or new ones above all others; "indexed" means
with the key index that `laketx worker` keeps.

small    100,000 rows in 50 partitions, beside the same table with a key within each partition
looks    200 and 1,000 partitions, written three times: `get` and Spark's SELECT of one key, with a plan of few files
         and with one of all
large    10 million rows in 1,000 partitions: an upsert of a million keys, also by Spark, look-ups, bytes of the
         index
many     100 million rows in 1,000 partitions: the check of their keys and their index by a worker that is killed five
         times while a writer writes, upserts of a million keys by Arrow and Spark, look-ups; half an hour
far      a million rows whose files are on S3, 30 ms away: the first look-up by a process that has read another table
writers  16 writers of random keys of one space, whose files are as far away, beside one writer
values   2 million rows in 40 files: rows by a string that is not the key, with Bloom filters and without
beside   a million rows in 20 partitions, an upsert of 100,000 keys, beside DuckLake, deltalake and pyiceberg
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import keys_targets
from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.keys_data import Rows
from benchmarks.peers.environment import ensure_python, said
from benchmarks.spark_data import session
from benchmarks.words import NO_PEERS, chosen
from laketx import Lake, Table, connect
from protos.laketx.v1 import catalog_pb2
from tests.iceberg.readers import extension_of
from worker.files import key_coverage, key_index
from worker.files.key_index import FOLDER
from worker.services.key_indexes import KeyIndexKeeper
from worker.spark.catalog_jar import jar_setting

SMALL: Final = Rows(100_000, 50)
LOOKS: Final = {200: Rows(60_000, 200), 1_000: Rows(300_000, 1_000)}
LOOKS_WRITES, LOOKED_UP_AT_ONCE, SELECTS_OF_ALL = 3, 30, 5
LARGE: Final = Rows(10_000_000, 1_000)
VALUES, FILES, LOOKED_UP = 2_000_000, 40, 20
BESIDE: Final = Rows(1_000_000, 20)
COUNTS: Final = (1, 1_000, 10_000)
SHARE: Final = 10  # of the rows, one in so many is upserted into large tables
RUNS: Final = 2
SMALL_RUNS: Final = 5
BYTES_MAX: Final = 12.0
MANY_SHARE: Final = 100  # as SHARE
MANY_MAX_S, MANY_SPARK_MAX_S = 30.0, 40.0
Scope = Literal["table", "partition"]


def filled(lake: Lake, name: str, scope: Scope, rows: Rows, buckets: int) -> Table:
    table = lake.create_table(
        f"shop.{name}",
        "id bigint, day int, amount double",
        primary_key=["id"],
        partition_by=["day"],
        key_scope=scope,
        buckets=buckets,
    )
    table.upsert(rows.all())
    return table


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def get_one(table: Table, keys: np.ndarray) -> list[float]:
    found = []
    for key in keys.tolist():
        begin = time.perf_counter()
        assert len(table.get([key])) == 1
        found.append((time.perf_counter() - begin) * 1_000)
    return found


class KeeperOfOne(KeyIndexKeeper):
    """Keeps the index of the table `indexed` alone, so that the one beside it has none."""

    def wants(self, meta: catalog_pb2.Table) -> bool:
        return meta.name == "shop.indexed"


def small(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - they are in another group
    rows = Rows(scaled(SMALL.count), SMALL.partitions)
    across = {"plain": filled(lake, "plain", "table", rows, 2), "indexed": filled(lake, "indexed", "table", rows, 2)}
    within = filled(lake, "within", "partition", rows, 2)
    keeper = KeeperOfOne(lake, now_s=lambda: 0.0)
    added = 0

    def measured(table: Table, part: pa.Table) -> float:
        if table is across["indexed"]:
            keeper.run_once()
        return seconds(lambda: table.upsert(part))

    for count in COUNTS:
        random: dict[str, list[float]] = {"plain": [], "indexed": [], "within": []}
        new: dict[str, list[float]] = {"plain": [], "indexed": [], "within": []}
        for _ in range(SMALL_RUNS):
            for name, table in {**across, "within": within}.items():
                random[name].append(measured(table, rows.some(count, moves=name != "within")))
                new[name].append(measured(table, rows.new(count, added)))
            added += count
        for words, times in (("random", random), ("new", new)):
            others = {"without the index": times["plain"], "within a partition": times["within"]}
            bench.add(f"upsert {count:,} {words} keys, indexed", times["indexed"], unit="s", peers=others)
    keys = rows.chance.choice(rows.count, 10 * RUNS)
    keeper.run_once()
    plain = get_one(across["plain"], keys)
    bench.add("get one key, indexed", get_one(across["indexed"], keys), unit="ms", peers={"without the index": plain})
    folders = {name: (Path(table.view.folder) / FOLDER).exists() for name, table in across.items()}
    assert folders == {"plain": False, "indexed": True}
    for table in across.values():
        assert table.count() == rows.count + added


@contextmanager
def in_spark(lake: Lake, address: str = "") -> Iterator[tuple[SparkSession, str]]:
    """A session, and the name in it of the lake in a folder, or of the service with this address."""
    with scratch() as folder:
        spark = session("2g", **jar_setting(), **{"spark.local.dir": str(folder)})
        try:
            with connect(address or lake.warehouse, spark, warehouse=lake.warehouse) as seen:
                yield spark, seen.as_catalog("bench")
        finally:
            spark.stop()


def select_one(spark: SparkSession, name: str, keys: np.ndarray) -> list[float]:
    found = []
    for key in keys.tolist():
        begin = time.perf_counter()
        assert len(spark.sql(f"SELECT * FROM {name} WHERE id = {key}").collect()) == 1
        found.append((time.perf_counter() - begin) * 1_000)
    return found


def looks(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - likewise
    with in_spark(lake) as (spark, name):
        looks_of(bench, lake, partial(select_one, spark), name)


def looks_of(bench: Benchmark, lake: Lake, selected: Callable[[str, np.ndarray], list[float]], name: str) -> None:
    for partitions, rows in LOOKS.items():
        table = filled(lake, f"looks_{partitions}", "table", rows, 2)
        for _ in range(LOOKS_WRITES - 1):
            table.upsert(rows.some(rows.count // LOOKS_WRITES, moves=True))
        KeyIndexKeeper(lake, now_s=lambda: 0.0).run_once()
        keys = rows.chance.choice(rows.count, LOOKED_UP_AT_ONCE)
        narrow = cpu_of(table, keys)
        selected(f"{name}.{table.name}", keys[:3])
        narrow_selects = selected(f"{name}.{table.name}", keys)
        forget_coverage(table)
        whole = cpu_of(table, keys)
        whole_selects = selected(f"{name}.{table.name}", keys[:SELECTS_OF_ALL])
        files = sum(1 for _ in lake.client.list_files(table.table_id))
        title = f"get one key, {partitions:,} partitions, {files:,} files"
        for word, at in (("", 0), ("client's processor time of ", 1)):
            bench.add(word + title, narrow[at], unit="ms", peers={"with a plan of all files": whole[at]})
        title = title.replace("get one key", "SELECT of one key by Spark")
        bench.add(title, narrow_selects, unit="ms", peers={"with a plan of all files": whole_selects})


def cpu_of(table: Table, keys: np.ndarray) -> tuple[list[float], list[float]]:
    """Milliseconds of look-ups, and of those the processor time of this process."""
    get_one(table, keys[:3])
    walls, began = [], time.process_time()
    for key in keys:
        walls += get_one(table, np.array([key]))
    return walls, [(time.process_time() - began) * 1_000 / len(keys)]


def large(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - they are in another group
    rows = Rows(scaled(LARGE.count), scaled(LARGE.partitions, 4))
    table = filled(lake, "large", "table", rows, 1)
    count = rows.count // SHARE
    plain = seconds(lambda: table.upsert(rows.some(count, moves=True)))
    keeper = KeyIndexKeeper(lake, now_s=lambda: 0.0)
    bench.add(f"make the index of {rows.count + count:,} images", [seconds(keeper.run_once)], unit="s")
    size = sum(path.stat().st_size for path in Path(table.view.folder).glob(f"{FOLDER}/*/*"))
    images = sum(one.file.rows for one in lake.client.list_files(table.table_id))
    bench.add("index", [size / images], unit="bytes a row or tombstone", at_most=BYTES_MAX)
    indexed = seconds(lambda: table.upsert(rows.some(count, moves=True)))
    title = f"upsert {count:,} of {rows.count:,} keys in {rows.partitions:,} partitions, indexed"
    bench.add(title, [indexed], unit="s", peers={"without the index": plain})
    keeper.run_once()
    for few in COUNTS[:2]:
        times = []
        for _ in range(RUNS):
            part = rows.some(few, moves=True)
            times.append(seconds(lambda part=part: table.upsert(part)))  # type: ignore[misc]
        bench.add(f"upsert {few:,} of {rows.count:,} keys, indexed", times, unit="s")
    bench.add(f"get one of {rows.count:,} keys, indexed", get_one(table, rows.chance.choice(rows.count, 10)), unit="ms")
    keeper.run_once()
    for statement in ("INSERT", "MERGE"):
        upsert_by_spark(bench, lake, table, rows, count, statement)
        keeper.run_once()
    assert table.count() == rows.count


def upsert_by_spark(bench: Benchmark, lake: Lake, table: Table, rows: Rows, count: int, statement: str) -> None:
    with in_spark(lake) as (spark, name):
        times = []
        for turn in ("first", "indexed", "plain"):
            if turn == "plain":
                forget_coverage(table)
            given = Path(lake.warehouse).parent / f"{turn}.parquet"
            pq.write_table(rows.some(count, moves=True), given)
            spark.read.parquet(str(given)).createOrReplaceTempView("given")
            text = f"INSERT INTO {name}.{table.name} SELECT * FROM given"
            if statement == "MERGE":
                both = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                text = f"MERGE INTO {name}.{table.name} t USING given s ON t.id = s.id {both}"
            times.append(seconds(partial(spark.sql, text)))
            KeyIndexKeeper(lake, now_s=lambda: 0.0).run_once()
    title = f"{statement} by Spark of {count:,} of {rows.count:,} keys in {rows.partitions:,} partitions, indexed"
    bench.add(title, [times[1]], unit="s", peers={"without the index": [times[2]]})


def forget_coverage(table: Table) -> None:
    for path in Path(table.view.folder).glob(f"{FOLDER}/*/*{key_coverage.SUFFIX}"):
        path.unlink()
    key_index.forget_all()


def many(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - it has a service of its own
    with keys_targets.many_keys() as (lake, table, rows, served):
        keys_targets.build(bench, lake, table, rows, served)
        count = rows.count // MANY_SHARE
        title = f"{count:,} of {rows.count:,} keys in {rows.partitions:,} partitions"
        keeper = KeyIndexKeeper(lake, now_s=lambda: 0.0)
        times = []
        for _ in range(RUNS):
            keeper.run_once()
            part = rows.some(count, moves=True)
            times.append(seconds(lambda part=part: table.upsert(part)))  # type: ignore[misc]
        bench.add(f"upsert {title}", times, unit="s", at_most=MANY_MAX_S)
        keeper.run_once()
        bench.add(f"get one of {rows.count:,} keys", get_one(table, rows.chance.choice(rows.count, 30)), unit="ms")
        times = []
        with in_spark(lake, f"laketx://{served.address}") as (spark, name):
            for _ in range(RUNS):
                given = Path(lake.warehouse).parent / "given.parquet"
                pq.write_table(rows.some(count, moves=True), given)
                spark.read.parquet(str(given)).createOrReplaceTempView("given")
                insert = f"INSERT INTO {name}.{table.name} SELECT * FROM given"
                times.append(seconds(partial(spark.sql, insert)))
                keeper.run_once()
        bench.add(f"INSERT by Spark of {title}", times, unit="s", at_most=MANY_SPARK_MAX_S)
        assert table.count() == rows.count


def values(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - likewise
    count = scaled(VALUES, FILES) // FILES
    chance = np.random.default_rng(7)
    tables = {
        name: lake.create_table(f"shop.{name}", "id bigint, mail string, amount double", properties=properties)
        for name, properties in {"with_filters": {"index.bloom.columns": "mail"}, "without_filters": {}}.items()
    }
    names = pa.array([f"{number:016x}@example.org" for number in chance.integers(1 << 62, size=count * FILES)])
    writes: dict[str, list[float]] = {name: [] for name in tables}
    for at in range(FILES):
        ids = pa.array(np.arange(at * count, (at + 1) * count))
        rows = pa.table({"id": ids, "mail": names.slice(at * count, count), "amount": chance.random(count)})
        for name, table in tables.items():
            writes[name].append(seconds(lambda table=table, rows=rows: table.append(rows)))  # type: ignore[misc]
    bench.add(
        f"append {count:,} rows", writes["with_filters"], unit="s", peers={"without filters": writes["without_filters"]}
    )
    reads: dict[str, list[float]] = {name: [] for name in tables}
    for at in chance.choice(len(names), LOOKED_UP).tolist():
        for name, table in tables.items():
            where = f"mail = '{names[at]}'"
            begin = time.perf_counter()
            assert table.to_arrow(where=where).column("id").to_pylist() == [at]
            reads[name].append((time.perf_counter() - begin) * 1_000)
    title = f"find one of {len(names):,} rows in {FILES} files by a string"
    bench.add(title, reads["with_filters"], unit="ms", peers={"without filters": reads["without_filters"]})
    sizes = {
        name: sum(path.stat().st_size for path in Path(table.view.folder).rglob("*.parquet"))
        for name, table in tables.items()
    }
    bench.add("bytes of the files, times those without", [sizes["with_filters"] / sizes["without_filters"]], unit="")


def beside(bench: Benchmark, lake: Lake, *, peers: bool) -> None:
    rows = Rows(scaled(BESIDE.count), BESIDE.partitions)
    table = filled(lake, "beside", "table", rows, 1)
    count = rows.count // SHARE
    keeper = KeyIndexKeeper(lake, now_s=lambda: 0.0)
    parts = [rows.some(count, moves=True) for _ in range(RUNS)]
    times = []
    for part in parts:
        keeper.run_once()
        times.append(seconds(lambda part=part: table.upsert(part)))  # type: ignore[misc]
    assert table.count() == rows.count
    found: dict[str, list[float]] = {}
    if peers:
        folder = Path(lake.warehouse).parent / "peers"
        folder.mkdir()
        given = [rows.all(), *parts]
        files = [folder / f"{at}.parquet" for at in range(len(given))]
        for path, part in zip(files, given, strict=True):
            pq.write_table(part, path)
        found["DuckLake MERGE"] = ducklake(folder, given)
        command = [str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.upsert_keys", str(folder)]
        found |= said([*command, *map(str, files)])
    title = f"upsert {count:,} of {rows.count:,} keys in {rows.partitions:,} partitions, indexed"
    bench.add(title, times, unit="s", peers=found)


def ducklake(folder: Path, given: list[pa.Table]) -> list[float]:
    """Seconds of a MERGE of all but the first, which is the table's."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as lake:
        lake.execute(f"LOAD '{extension_of('ducklake')}'")
        lake.execute(f"ATTACH 'ducklake:{folder}/lake.ducklake' AS lake (DATA_PATH '{folder}/ducklake')")
        lake.execute("CREATE TABLE lake.t (id BIGINT, day INT, amount DOUBLE)")
        lake.execute("ALTER TABLE lake.t SET PARTITIONED BY (day)")
        lake.register("given", given[0])
        lake.execute("INSERT INTO lake.t SELECT * FROM given")
        found = []
        for part in given[1:]:
            lake.register("given", part)
            merge = "MERGE INTO lake.t USING given USING (id) WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
            found.append(seconds(lambda merge=merge: lake.execute(merge)))  # type: ignore[misc]
        assert lake.execute("SELECT count(*) FROM lake.t").fetchall() == [(len(given[0]),)]
        return found


def far(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - its files are on S3
    keys_targets.far(bench)


def writers(bench: Benchmark, lake: Lake, *, peers: bool) -> None:  # noqa: ARG001 - likewise
    keys_targets.writers(bench)


GROUPS: Final = {
    "small": small,
    "looks": looks,
    "large": large,
    "many": many,
    "far": far,
    "writers": writers,
    "values": values,
    "beside": beside,
}


def main() -> None:
    words = chosen(__doc__, [*GROUPS, NO_PEERS])
    bench = Benchmark("keys", "Keys across partitions", packages=["pyarrow", "polars", "duckdb"])
    for name, group in GROUPS.items():
        if name in words or (name != "many" and not set(words) - {NO_PEERS}):
            with scratch() as folder, connect(folder / "lake") as lake:
                group(bench, lake, peers=NO_PEERS not in words)
    raise SystemExit(0 if bench.finish() else 1)


if __name__ == "__main__":
    main()
