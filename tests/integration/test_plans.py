"""Plans and increments at every version of random histories, against what was live when the version was the head."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from pyroaring import BitMap64

from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import common_pb2, read_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.service import PRINCIPAL, Service, Stubs, day, reason_of, service

DAYS = ("1", "2", "3")
COMMITS = 45
FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "data-v1"
Snapshot = dict[str, common_pb2.LiveEntry]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs, MetaClient]]:
    with service(tmp_path_factory.mktemp("plans") / "db") as (running, stubs), MetaClient(running.address) as client:
        yield running, stubs, client


def path_of(entry: common_pb2.LiveEntry) -> str:
    return entry.file.path or entry.delete_set.path


def by_path(entries: list[common_pb2.LiveEntry]) -> Snapshot:
    found = {path_of(entry): entry for entry in entries}
    assert len(found) == len(entries), "an entry came twice"
    return found


def planned(client: MetaClient, table_id: str, version: int | None = None, **asked: object) -> Snapshot:
    parts = list(client.plan_scan(table_id, version=version, **asked))  # type: ignore[arg-type]
    assert parts
    assert version is None or {part.version for part in parts} == {version}
    return by_path([entry for part in parts for entry in part.entries])


def compare(column: str, comparison: str, value: int | str) -> common_pb2.Predicate:
    number = {"=": 1, "<>": 2, "<": 3, "<=": 4, ">": 5, ">=": 6}[comparison]
    literal = common_pb2.Value(text=value) if isinstance(value, str) else common_pb2.Value(integer=value)
    return common_pb2.Predicate(compare=common_pb2.Compare(column=column, comparison=number, value=literal))  # type: ignore[arg-type]


def all_of(*operands: common_pb2.Predicate) -> common_pb2.Predicate:
    return common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=operands))


def any_of(*operands: common_pb2.Predicate) -> common_pb2.Predicate:
    return common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=operands))


def day_of(entry: common_pb2.LiveEntry) -> str:
    partition = entry.delete_set.partition if entry.HasField("delete_set") else entry.file.partition
    return partition.values[0].value.text


class History:
    """One table, changed at random, one transaction after the other; what was live at each version."""

    def __init__(self, stubs: Stubs, *, keyed: bool, seed: int) -> None:
        self.stubs = stubs
        self.keyed = keyed
        self.random = random.Random(seed)
        profile = self.random.choice(["maxcompute", "delta_serializable"])
        self.table_id = stubs.create(f"plans_{'keyed' if keyed else 'append'}_{seed}", keyed=keyed, profile=profile)
        self.snapshots: list[Snapshot] = [{}]
        self.steps: list[Callable[[str], bool]] = [self.insert, self.insert, self.insert, self.overwrite, self.major]
        self.steps += [self.minor, self.truncate, self.restore, *([] if keyed else [self.delete, self.delete])]

    def step(self) -> None:
        if self.random.choice(self.steps)(self.random.choice(DAYS)):
            self.snapshots.append(by_path(self.stubs.list_files(self.table_id)))

    def files(self, where: str) -> list[common_pb2.LiveEntry]:
        return [one for one in self.snapshots[-1].values() if one.HasField("file") and day_of(one) == where]

    def change(
        self,
        operation: common_pb2.Operation.ValueType,
        fill: Callable[[common_pb2.Change, str], None],
    ) -> bool:
        txn_id = self.stubs.begin(self.table_id, operation=operation)
        change = common_pb2.Change(table_id=self.table_id)
        fill(change, txn_id)
        assert self.stubs.commit(txn_id, change).WhichOneof("outcome") == "committed"
        return True

    def file(self, txn_id: str, name: str, where: str, *, base: bool = False) -> common_pb2.DataFile:
        kind = common_pb2.FILE_KIND_UNSPECIFIED
        if self.keyed:
            kind = common_pb2.FILE_KIND_BASE if base else common_pb2.FILE_KIND_DELTA
        found = common_pb2.DataFile(path=f"{txn_id}/{name}", partition=day(where), kind=kind, rows=10, bytes=1000)
        low = self.random.randrange(100)
        low_value, high_value = common_pb2.Value(integer=low), common_pb2.Value(integer=low + 9)
        found.stats.add(column_id=1, min=low_value, max=high_value, nulls=0)
        return found

    def insert(self, where: str) -> bool:
        def fill(change: common_pb2.Change, txn_id: str) -> None:
            count = self.random.choice([1, 1, 2, 5])
            change.files.extend(self.file(txn_id, f"f{n}", where) for n in range(count))

        return self.change(common_pb2.OPERATION_INSERT, fill)

    def overwrite(self, where: str) -> bool:
        def fill(change: common_pb2.Change, txn_id: str) -> None:
            change.files.append(self.file(txn_id, "o", where))
            change.scope.named.partitions.append(day(where))

        return self.change(common_pb2.OPERATION_OVERWRITE, fill)

    def truncate(self, where: str) -> bool:
        def fill(change: common_pb2.Change, _: str) -> None:
            change.scope.named.partitions.append(day(where))

        return self.change(common_pb2.OPERATION_TRUNCATE, fill)

    def restore(self, where: str) -> bool:
        def fill(change: common_pb2.Change, _: str) -> None:
            change.restore_version = self.random.randrange(len(self.snapshots))
            if self.random.random() < 0.5:
                change.scope.named.partitions.append(day(where))
            else:
                change.scope.all = True

        return self.change(common_pb2.OPERATION_RESTORE, fill)

    def delete(self, where: str) -> bool:
        files = self.files(where)
        if not files:
            return False

        def fill(change: common_pb2.Change, txn_id: str) -> None:
            hidden = self.random.choice(files).file
            bitmap = BitMap64([hidden.first_row_id, hidden.first_row_id + 3])
            change.reads.add(partitions=[day(where)])
            change.delete_sets.add(
                path=f"{txn_id}/d", partition=day(where), bitmap=bitmap.serialize(), touches=[hidden.path]
            )

        return self.change(common_pb2.OPERATION_DELETE, fill)

    def minor(self, where: str) -> bool:
        kinds = (common_pb2.FILE_KIND_DELTA,) if self.keyed else (common_pb2.FILE_KIND_UNSPECIFIED,)
        versions = {one.data_version for one in self.files(where) if one.file.kind == common_pb2.FILE_KIND_BASE}
        files = [
            one for one in self.files(where) if one.file.kind in kinds and one.data_version > max(versions, default=-1)
        ]
        return self.compact(where, files, common_pb2.OPERATION_MINOR_COMPACT)

    def major(self, where: str) -> bool:
        return self.compact(where, self.files(where), common_pb2.OPERATION_MAJOR_COMPACT)

    def compact(self, where: str, files: list[common_pb2.LiveEntry], operation: common_pb2.Operation.ValueType) -> bool:
        if not files:
            return False

        def fill(change: common_pb2.Change, txn_id: str) -> None:
            output = self.file(txn_id, "c", where, base=operation == common_pb2.OPERATION_MAJOR_COMPACT)
            change.files.append(output)
            change.groups.add(partition=day(where), inputs=[one.file.path for one in files], outputs=[output.path])

        return self.change(operation, fill)


@pytest.mark.parametrize(
    ("seed", "keyed"),
    [(0, True), (1, False), *(pytest.param(*one, marks=pytest.mark.long) for one in [(0, False), (1, True)])],
)
def test_every_version_is_planned_as_it_was(world: tuple[Service, Stubs, MetaClient], seed: int, keyed: bool) -> None:
    _, stubs, client = world
    history = History(stubs, keyed=keyed, seed=seed)
    while len(history.snapshots) <= COMMITS:
        history.step()
        check_pruned(client, history, len(history.snapshots) - 1)
    for version, snapshot in enumerate(history.snapshots):
        assert planned(client, history.table_id, version) == snapshot
        where = history.random.choice(DAYS)
        here = {path: one for path, one in snapshot.items() if day_of(one) == where}
        assert planned(client, history.table_id, version, predicate=compare("day", "=", where)) == here
        assert planned(client, history.table_id, version, partitions=[day(where)]) == here
        check_pruned(client, history, version)
    check_increments(client, history)
    check_commits_ago(client, history)


def check_pruned(client: MetaClient, history: History, version: int) -> None:
    """By id, the key: a file goes exactly where its range does not meet, a delete set where no file kept needs it."""
    low = history.random.randrange(100)
    either = any_of(compare("day", "=", "2"), compare("id", ">=", low))
    ranged = all_of(compare("id", ">=", low), compare("id", "<", low + 20), compare("day", "<>", "2"))
    snapshot = history.snapshots[version]
    for predicate, wanted_ids, other_days in ((ranged, range(low, low + 20), False), (either, range(low, 1_000), True)):
        files = {
            path: one
            for path, one in snapshot.items()
            if one.HasField("file") and (other_days if day_of(one) == "2" else meets(one.file, wanted_ids))
        }
        sets = {
            path: one
            for path, one in snapshot.items()
            if one.HasField("delete_set") and any(may_hide(one, file) for file in files.values())
        }
        found = planned(client, history.table_id, version, predicate=predicate)
        assert {path: one for path, one in found.items() if one.HasField("file")} == files
        assert sets.items() <= found.items() <= snapshot.items()


def meets(file: common_pb2.DataFile, ids: range) -> bool:
    return file.stats[0].max.integer >= ids.start and file.stats[0].min.integer < ids.stop


def may_hide(one: common_pb2.LiveEntry, live: common_pb2.LiveEntry) -> bool:
    ids = range(live.file.first_row_id, live.file.first_row_id + live.file.rows)
    hidden = BitMap64.deserialize(one.delete_set.bitmap)
    return day_of(one) == day_of(live) and one.data_version > live.data_version and any(row in hidden for row in ids)


def check_increments(client: MetaClient, history: History) -> None:
    snapshots, head = history.snapshots, len(history.snapshots) - 1
    logical = [one.version for one in client.list_versions(history.table_id) if one.HasField("time_version_us")][::-1]
    for after in (0, head // 2, head):
        found = list(client.plan_changes(history.table_id, after))
        assert [part.version.version for part in found if part.HasField("version")] == [v for v in logical if v > after]
        assert {part.to_version for part in found} == {head}
    for part in client.plan_changes(history.table_id, 0, head):
        before, now = snapshots[part.version.version - 1], snapshots[part.version.version]
        added, removed = by_path(list(part.added)), by_path(list(part.removed))
        assert removed.items() <= before.items()
        kept = {path: one for path, one in before.items() if path not in removed}
        assert kept | added == now
    for _ in range(40):
        after, to = sorted(history.random.sample(range(head + 1), 2))
        where = history.random.choice(DAYS)
        mode = read_pb2.CHANGES_MODE_DIFFERENCE
        (part,) = client.plan_changes(
            history.table_id,
            after,
            to,
            mode=mode,
            predicate=any_of(compare("day", "=", where), compare("day", ">", "2")),
        )
        days = {where, "3"}
        old, new = ({rows_of(x) for x in snapshots[v].values() if day_of(x) in days} for v in (after, to))
        assert {rows_of(one) for one in part.added} == new - old
        assert {rows_of(one) for one in part.removed} == old - new


def rows_of(entry: common_pb2.LiveEntry) -> tuple[str, int]:
    """What an entry is to a reader: a RESTORE gives it another commit, and no other rows."""
    return path_of(entry), entry.data_version


def check_commits_ago(client: MetaClient, history: History) -> None:
    versions = list(client.list_versions(history.table_id))
    logical = [one.version for one in versions if one.HasField("time_version_us")] + [0]
    for ago, version in enumerate(logical):
        assert client.resolve_version(history.table_id, commits_ago=ago).version == version
    with pytest.raises(Exception, match="VERSION_RETIRED"):
        client.resolve_version(history.table_id, commits_ago=len(logical))


def test_a_large_commit_comes_in_parts(world: tuple[Service, Stubs, MetaClient]) -> None:
    _, stubs, client = world
    table_id = stubs.create("plans_large")
    txn_id = new_uuid7()
    long = "x" * 900
    files = [common_pb2.DataFile(path=f"{txn_id}/{long}{n}", partition=day(), rows=1, bytes=1) for n in range(2500)]
    stubs.txns.Append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=files, principal=PRINCIPAL))
    parts = list(client.plan_changes(table_id, 0, 1))
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert len(parts) > 1
    added = by_path([one for part in parts for one in part.added])
    assert added == planned(client, table_id) == by_path(stubs.list_files(table_id))
    assert {one.file.schema_version for one in added.values()} == {1}
    assert len(list(client.plan_scan(table_id))) > 1


@pytest.mark.parametrize("keyed", [False, True])
def test_many_files_are_pruned_in_blocks_as_one_by_one(world: tuple[Service, Stubs, MetaClient], keyed: bool) -> None:
    """A plan that explains itself tests each file, and so does the first plan of a version."""
    _, stubs, client = world
    table_id = stubs.create(f"blocks_{keyed}", keyed=keyed, profile="maxcompute")
    random.seed(5)
    for step in range(4):
        txn_id = new_uuid7()
        files = []
        for number in range(700 if step == 0 else 20):
            low = random.randrange(5_000)
            file = common_pb2.DataFile(path=f"{txn_id}/{number}", rows=10, bytes=100, partition=day("1"))
            file.kind = common_pb2.FILE_KIND_DELTA if keyed else common_pb2.FILE_KIND_UNSPECIFIED
            if random.random() < 0.9:
                file.stats.add(column_id=1, min=common_pb2.Value(integer=low), max=common_pb2.Value(integer=low + 9))
            files.append(file)
        client.append(table_id, files, txn_id=txn_id)
        points = [all_of(compare("id", "=", random.randrange(5_000))) for _ in range(5)]
        for point in [compare("id", "<", 0), *points, compare("id", ">", 4_500)]:
            by_each = planned(client, table_id, predicate=point, explain=True)
            assert planned(client, table_id, predicate=point) == by_each
    assert len(planned(client, table_id, predicate=compare("id", "=", 7))) < 760 / 4


def test_an_explanation_counts_what_was_left_out(world: tuple[Service, Stubs, MetaClient]) -> None:
    _, stubs, client = world
    history = History(stubs, keyed=False, seed=99)
    for where in (*DAYS, *DAYS):
        history.insert(where)
    snapshot = by_path(stubs.list_files(history.table_id))
    predicate = all_of(compare("day", "<", "3"), compare("id", "<", 50), compare("id", ">", 1_000))
    *_, last = client.plan_scan(history.table_id, predicate=predicate, explain=True)
    told = last.explanation
    away = sum(day_of(one) == "3" for one in snapshot.values())
    assert not last.entries
    assert (told.partitions, told.partitions_pruned, told.files, told.files_kept) == (3, 1, len(snapshot), 0)
    assert (told.files_pruned_by_partition, told.files_pruned_by_statistics) == (away, len(snapshot) - away)
    over = sum(one.file.stats[0].min.integer >= 50 for one in snapshot.values() if day_of(one) != "3")
    assert [(one.conjunct, one.by_partition, one.files_pruned) for one in told.conjuncts] == [
        ("day < '3'", True, away),
        ("id < 50", False, over),
        ("id > 1000", False, len(snapshot) - away - over),
    ]
    bare = planned(client, history.table_id, without_stats=True)
    assert bare.keys() == snapshot.keys()
    assert not any(one.file.stats for one in bare.values())


Request = read_pb2.PlanScanRequest | read_pb2.PlanChangesRequest | read_pb2.ResolveVersionRequest


def ask(stubs: Stubs, request: Request) -> None:
    match request:
        case read_pb2.PlanScanRequest():
            list(stubs.reads.PlanScan(request))
        case read_pb2.PlanChangesRequest():
            list(stubs.reads.PlanChanges(request))
        case _:
            stubs.reads.ResolveVersion(request)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (read_pb2.PlanScanRequest(version=9), "VERSION_IN_FUTURE"),
        (read_pb2.PlanScanRequest(version=-1), "VERSION_INVALID"),
        (read_pb2.PlanScanRequest(predicate=compare("nope", "=", 1)), "COLUMN_UNKNOWN"),
        (read_pb2.PlanScanRequest(predicate=compare("id", "=", "x")), "VALUE_TYPE_MISMATCH"),
        (read_pb2.PlanScanRequest(partitions=[common_pb2.Partition()]), "PARTITION_INCOMPLETE"),
        (read_pb2.PlanChangesRequest(from_version=1, to_version=9), "VERSION_IN_FUTURE"),
        (read_pb2.PlanChangesRequest(from_version=2, to_version=1), "RANGE_INVALID"),
        (read_pb2.PlanChangesRequest(from_version=-1), "VERSION_INVALID"),
        (read_pb2.PlanChangesRequest(mode=7), "CHANGES_MODE_INVALID"),  # type: ignore[arg-type]
        (read_pb2.ResolveVersionRequest(commits_ago=-1), "COMMITS_AGO_INVALID"),
        (read_pb2.ResolveVersionRequest(commits_ago=1 << 40), "COMMITS_AGO_INVALID"),
        (read_pb2.ResolveVersionRequest(commits_ago=3), "VERSION_RETIRED"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_plan_is_refused(
    world: tuple[Service, Stubs, MetaClient],
    request_: Request,
    reason: str,
) -> None:
    _, stubs, client = world
    names = {table.name: table.table_id for table in client.list_tables()}
    request_.table_id = names.get("plans_refused") or stubs.create("plans_refused")
    if "plans_refused" not in names:
        stubs.append(request_.table_id)
        stubs.append(request_.table_id)
    with pytest.raises(grpc.RpcError) as caught:
        ask(stubs, request_)
    assert reason_of(caught.value) == reason


def test_data_of_the_first_release_is_planned_at_every_version(tmp_path: Path) -> None:
    """`ListFiles` reads what the first release wrote; plans read what the opening made of it."""
    shutil.copytree(FIXTURE, tmp_path / "db")
    for _ in range(2):
        with service(tmp_path / "db") as (running, stubs), MetaClient(running.address) as client:
            tables = list(client.list_tables())
            assert tables
            for table in tables:
                for version in range(table.head_version + 1):
                    assert planned(client, table.table_id, version) == by_path(
                        stubs.list_files(table.table_id, version)
                    )
                logical = [v.version for v in client.list_versions(table.table_id) if v.HasField("time_version_us")]
                found = client.plan_changes(table.table_id, 0)
                assert [part.version.version for part in found if part.HasField("version")] == logical[::-1]
                for ago, version in enumerate([*logical, 0]):
                    assert client.resolve_version(table.table_id, commits_ago=ago).version == version
