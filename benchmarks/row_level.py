"""Writers that update random single rows of one file: row_level beside Delta's rules. `make bench-row-level`.

Metadata alone: a writer begins, takes as long as a small job, and commits a delete set of one row and a file with its
new image. What the log says afterwards is checked: no two transactions that crossed changed one row.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from dataclasses import dataclass, field

from pyroaring import BitMap64

from benchmarks.frame import Benchmark, scale, scratch
from benchmarks.serving import server
from benchmarks.words import chosen
from metaservice.client import uuid7
from metaservice.client.errors import ConflictError
from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

WRITERS = 16
ROWS = 1_000_000
WORK_S = 0.1  # between begin and commit
PROFILES = ("row_level", "delta_write_serializable")


@dataclass(frozen=True)
class Update:
    """One that committed."""

    row: int
    read: int
    version: int


@dataclass
class Contest:
    """One table, and what its writers did."""

    client: MetaClient
    table_id: str
    first_row_id: int
    holder: dict[int, str]  # the file with a row's newest image; else `file`
    file: str
    won: list[Update] = field(default_factory=list)
    lost: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def new_contest(client: MetaClient, profile: str) -> Contest:
    table = catalog_pb2.Table(name=f"t_{uuid7().replace('-', '_')}", profile=profile)
    table.columns.add(name="id", type="bigint")
    table.columns.add(name="amount", type="double")
    table_id = client.create_table(table).table_id
    txn_id = uuid7()
    client.append(table_id, [data_file(f"{txn_id}/0.parquet", 0, ROWS - 1)], txn_id=txn_id)
    (entry,) = client.list_files(table_id)
    return Contest(client, table_id, entry.file.first_row_id, {}, entry.file.path)


def data_file(path: str, low: int, high: int) -> common_pb2.DataFile:
    file = common_pb2.DataFile(path=path, rows=high - low + 1, bytes=65_536)
    smallest, largest = common_pb2.Value(integer=low), common_pb2.Value(integer=high)
    file.stats.add(column_id=1, min=smallest, max=largest, nulls=0)
    return file


def update_one(contest: Contest, row: int) -> None:
    client, table_id = contest.client, contest.table_id
    literal = common_pb2.Value(integer=row)
    equal = common_pb2.Compare(column="id", comparison=common_pb2.COMPARISON_EQUAL, value=literal)
    read = common_pb2.Read(predicate=common_pb2.Predicate(compare=equal), changes_all=True)
    intent = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_UPDATE, reads=[read])
    with contest.lock:  # the version that is read and the files that hold its rows belong together
        txn = client.begin([intent])
        held_by = contest.holder.get(row, contest.file)
    time.sleep(WORK_S)
    image = data_file(f"{txn.txn_id}/0.parquet", row, row)
    image.carries_row_ids = True
    image.row_id_min = image.row_id_max = contest.first_row_id + row
    bitmap = BitMap64([contest.first_row_id + row]).serialize()
    hides = common_pb2.DeleteSet(path=f"{txn.txn_id}/deletes", bitmap=bitmap, rows=1, touches=[held_by])
    change = common_pb2.Change(table_id=table_id, reads=[read], files=[image], delete_sets=[hides])
    try:
        with txn:
            committed = txn.commit([change])
    except ConflictError:
        with contest.lock:
            contest.lost += 1
        return
    with contest.lock:
        contest.holder[row] = image.path
        contest.won.append(Update(row, txn.tables[table_id].read_version, committed.tables[0].version))


def contend(client: MetaClient, profile: str, seconds: float) -> Contest:
    contest = new_contest(client, profile)
    until = time.monotonic() + seconds

    def write(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < until:
            update_one(contest, rng.randrange(ROWS))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    check(contest)
    return contest


def check(contest: Contest) -> None:
    """Every acknowledged update stands in the log, and none was lost to another one of its row."""
    head = contest.client.get_table(table_id=contest.table_id).head_version
    if sorted(one.version for one in contest.won) != list(range(2, head + 1)):
        raise RuntimeError("the log holds other commits than those that were acknowledged")
    newest: dict[int, int] = {}
    for one in sorted(contest.won, key=lambda one: one.version):
        if newest.get(one.row, 0) > one.read:
            raise RuntimeError(f"version {one.version} lost the update of version {newest[one.row]}")
        newest[one.row] = one.version


def main() -> int:
    chosen(__doc__)
    bench = Benchmark("row_level", "16 writers, single rows of one file: row_level beside Delta's rules", ["grpcio"])
    seconds = max(2.0, 8.0 * scale())
    rates: dict[str, list[float]] = {profile: [] for profile in PROFILES}
    wasted: dict[str, list[float]] = {profile: [] for profile in PROFILES}
    with scratch() as folder, server(folder / "db") as (address, _), MetaClient(address, principal="bench") as client:
        for _ in range(3):
            for profile in PROFILES:
                done = contend(client, profile, seconds)
                rates[profile].append(len(done.won) / seconds)
                wasted[profile].append(100 * done.lost / (len(done.won) + done.lost))
    for profile in PROFILES:
        note = f"{WORK_S * 1_000:.0f} ms between begin and commit"
        bench.add(f"{profile}: updates of random rows, {WRITERS} writers", rates[profile], unit="commits/s", note=note)
        bench.add(f"{profile}: lost races", wasted[profile], unit="%")
    ratios = [mine / delta for mine, delta in zip(*rates.values(), strict=True)]
    bench.add("row_level over Delta's rules", ratios, unit="times", at_least=10)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
