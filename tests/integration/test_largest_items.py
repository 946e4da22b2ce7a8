"""The largest items that requests may write are read again by every call that answers with a list.

The client takes messages of 4 MiB, as gRPC clients do unless they are told otherwise: a larger answer fails its call.
"""

import subprocess
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import grpc
import pytest
from pyroaring import BitMap64

from metaservice.client import ConflictError, GoneError, InvalidError, MetaClient, MetaServiceError, uuid7
from metaservice.core import limits
from protos.laketx.v1 import (
    admin_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    common_pb2,
    maintenance_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
    transaction_pb2_grpc,
)
from protos.laketx.v1 import maintenance_pb2 as tasks_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from tests.conformance.server import ROOT
from tests.house.answers import documented
from tests.integration.service import service
from tests.integration.terminal import DEADLINE_S, Shell, in_one_process

WIDE = "\U0001d535"  # four bytes in UTF-8
TEXT = WIDE * limits.TEXT_CHARS_MAX
NAME = WIDE * 256
PROPERTIES = {f"{number:03}{WIDE * 253}": TEXT for number in range(limits.PROPERTIES_MAX)}
INSERT, UPDATE, DELETE = common_pb2.OPERATION_INSERT, common_pb2.OPERATION_UPDATE, common_pb2.OPERATION_DELETE
MINOR = common_pb2.OPERATION_MINOR_COMPACT
PART = WIDE * 640  # twelve characters each in the name of a partition
STATS_TEXT = "x" * 900_000
BUCKETS = 280
TAGS, LOST, COMMITS = 300, 150, 5
BRANCHES, BRANCHED = 300, 230
PERIODIC = 60


class Recorder(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Which calls were made."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def _note(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        self.methods.append(details.method.rpartition("/")[2])
        return continuation(details, request)

    intercept_unary_unary: Any = _note
    intercept_unary_stream: Any = _note
    intercept_stream_unary: Any = _note
    intercept_stream_stream: Any = _note


class Plain(MetaClient):
    """Over a channel without options."""

    def __init__(self, address: str, *, use_session: bool = True) -> None:
        super().__init__(address, principal=NAME, client_name=NAME, retry_budget_s=5, use_session=use_session)
        self.reach()
        self.recorder = Recorder()
        self._channel = channel = grpc.intercept_channel(grpc.insecure_channel(address), self.recorder)
        self._transactions = transaction_pb2_grpc.TransactionServiceStub(channel)
        self._catalog = catalog_pb2_grpc.CatalogServiceStub(channel)
        self._reads = read_pb2_grpc.ReadServiceStub(channel)
        self._maintenance = maintenance_pb2_grpc.MaintenanceServiceStub(channel)
        self._admin = admin_pb2_grpc.AdminServiceStub(channel)

    def count(self, method: str, call: Callable[[], object]) -> int:
        """How often the method is asked for by something."""
        before = self.recorder.methods.count(method)
        call()
        return self.recorder.methods.count(method) - before


RUN: set[str] = set()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("largest") / "db") as (server, _):
        yield server.address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Plain]:
    with Plain(address) as found:
        yield found


def new_table(client: MetaClient, name: str, *, keyed: bool = False, partitioned: bool = True) -> str:
    columns = [catalog_pb2.Column(name=one, type="string", nullable=False) for one in ("id", "part")]
    table = catalog_pb2.Table(name=name, columns=columns, partition_columns=["part"] if partitioned else [])
    if keyed:
        table.primary_key.extend(["id", "part"])
        table.buckets = BUCKETS
    return client.create_table(table).table_id


def partition(text: str = PART) -> common_pb2.Partition:
    value = common_pb2.Value(text=text)
    return common_pb2.Partition(values=[common_pb2.PartitionValue(column="part", value=value)])


def file(txn_id: str, number: int, *, stats: int = 0, rows: int = 1, **more: Any) -> common_pb2.DataFile:
    """With the longest path."""
    start = f"{txn_id}/{number}-"
    found = common_pb2.DataFile(path=start + WIDE * (limits.PATH_CHARS_MAX - len(start)), rows=rows, bytes=1, **more)
    text = common_pb2.Value(text=STATS_TEXT)
    found.stats.extend(common_pb2.ColumnStats(column_id=1, min=text, max=text) for _ in range(stats))
    return found


def begin(client: MetaClient, table_id: str, operation: Any = INSERT, **more: Any) -> Any:
    return client.begin([wire.TableIntent(table_id=table_id, operation=operation)], **more)


def test_files_and_commits(client: Plain, address: str) -> None:
    table_id = new_table(client, "files")
    for number in range(COMMITS):
        txn = begin(client, table_id, commit_message=TEXT, properties=PROPERTIES)
        txn.register(table_id, [file(txn.txn_id, n, stats=1, partition=partition()) for n in range(3)])
        versions = [common_pb2.AppVersion(app_id=f"{n:03}{WIDE * 253}", version=number + 1) for n in range(100)]
        txn.commit([common_pb2.Change(table_id=table_id, app_versions=versions)])
    assert len(list(client.list_files(table_id))) == 3 * COMMITS
    assert sum(len(part.entries) for part in client.plan_scan(table_id)) == 3 * COMMITS
    for mode in (read_pb2.CHANGES_MODE_LOG, read_pb2.CHANGES_MODE_DIFFERENCE):
        parts = list(client.plan_changes(table_id, 0, mode=mode))
        assert sum(len(part.added) for part in parts) == 3 * COMMITS
        assert len(parts) > COMMITS
    found: list[read_pb2.Version] = []
    assert client.count("ListVersions", lambda: found.extend(client.list_versions(table_id, page_size=1_000))) > 1
    assert [one.version for one in found] == list(range(COMMITS, -1, -1))
    assert dict(found[0].properties) == PROPERTIES
    watched = client.watch(table_id, after_version=-1)
    assert [next(watched).version for _ in range(COMMITS + 1)] == list(range(COMMITS + 1))
    watched.close()


def test_what_no_answer_would_hold_is_refused(client: Plain) -> None:
    table_id, txn_id = new_table(client, "refused"), ""
    columns = [catalog_pb2.Column(name=one, type="string") for one in ("a", "part", "b")]
    table = catalog_pb2.Table(name="two", columns=columns, partition_columns=["part", "b"])
    two = client.create_table(table).table_id
    with begin(client, table_id) as txn:
        txn_id = txn.txn_id
        with pytest.raises(InvalidError, match="ENTRY_TOO_LARGE"):
            txn.register(table_id, [file(txn_id, 1, stats=2, partition=partition())])
        with pytest.raises(InvalidError, match=r"ENTRY_TOO_LARGE.*without"):
            txn.register(table_id, [file(txn_id, 2, row_order="x" * 200_000, partition=partition())])
        touched = common_pb2.DeleteSet(path=f"{txn_id}/d", partition=partition(), rows=1, row_id_min=1, row_id_max=1)
        touched.touches.extend(file(txn_id, number).path for number in range(600))
        with pytest.raises(InvalidError, match="ENTRY_TOO_LARGE"):
            txn.register(table_id, [], [touched])
        del touched.touches[:]
        touched.touches.append("x" * 5_000)
        with pytest.raises(InvalidError, match="PATH_INVALID"):
            txn.register(table_id, [], [touched])
    with begin(client, two) as txn:
        both = partition()
        both.values.add(column="b", value=common_pb2.Value(text=PART))
        with pytest.raises(InvalidError, match="PARTITION_TOO_LONG"):
            txn.register(two, [file(txn.txn_id, 1, partition=both)])
    with begin(client, table_id, MINOR) as txn:
        group = common_pb2.CompactionGroup(partition=partition(), inputs=["x" * 5_000_000])
        with pytest.raises(InvalidError, match="PATH_INVALID"):
            txn.commit([common_pb2.Change(table_id=table_id, groups=[group])])
    with pytest.raises(InvalidError, match="PAYLOAD_TOO_LARGE"):
        client.ping(b"x" * (limits.PING_BYTES_MAX + 1))
    named = common_pb2.Partition(values=[common_pb2.PartitionValue(column=TEXT)])
    with pytest.raises(InvalidError, match="PARTITION_COLUMN_UNKNOWN") as refusal:
        list(client.plan_scan(table_id, partitions=[named]))
    assert refusal.value.facts["column"].startswith(WIDE * 32)


def test_delete_sets(client: Plain) -> None:
    table_id = new_table(client, "deletes")
    rows = 15_000_000
    txn = begin(client, table_id)
    added = [file(txn.txn_id, number, rows=rows, partition=partition()) for number in range(3)]
    txn.register(table_id, added)
    txn.commit([common_pb2.Change(table_id=table_id)])
    firsts = [entry.file.first_row_id for entry in client.list_files(table_id)]
    for first in firsts:
        txn = begin(client, table_id, DELETE)
        bitmap = BitMap64(range(first, first + rows, 2)).serialize()
        assert len(bitmap) > 1_800_000
        deleted = common_pb2.DeleteSet(path=f"{txn.txn_id}/d", partition=partition(), bitmap=bitmap)
        txn.register(table_id, [], [deleted])
        txn.commit([common_pb2.Change(table_id=table_id, reads=[common_pb2.Read()])])
    assert len(list(client.list_files(table_id))) == 6
    assert sum(len(part.entries) for part in client.plan_scan(table_id)) == 6
    assert sum(len(part.added) for part in client.plan_changes(table_id, 1)) == 3


def test_an_explanation_of_the_longest_condition(client: Plain) -> None:
    table_id = new_table(client, "explained")
    text = common_pb2.Value(text=WIDE * 600)
    equal = common_pb2.Compare(column="id", comparison=common_pb2.COMPARISON_NOT_EQUAL, value=text)
    parts = [common_pb2.Predicate(compare=equal) for _ in range(4_000)]
    for number, part in enumerate(parts):
        part.compare.value.text = f"{number}{WIDE * 600}"
    condition = common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=parts))
    *_, last = client.plan_scan(table_id, predicate=condition, explain=True)
    assert len(last.explanation.conjuncts) == len(parts)


def test_definitions_and_namespaces(client: Plain) -> None:
    properties = {f"user.{number:0250}": TEXT for number in range(limits.PROPERTIES_MAX)}
    count = 5
    for number in range(count):
        client.create_namespace(f"n{number}", properties=properties)
        altered = client.alter_namespace(f"n{number}", set_properties=properties, remove_properties=["user.absent"])
        assert dict(altered.namespace.properties) == properties
        assert dict(client.get_namespace(f"n{number}").properties) == properties
    assert [one.name for one in client.list_namespaces()] == [f"n{number}" for number in range(count)]
    comment = TEXT[: limits.TEXT_CHARS_MAX]
    columns = [catalog_pb2.Column(name=f"c{n:03}{WIDE * 124}", type="string", comment=comment) for n in range(50)]
    ids = []
    for number in range(count):
        table = catalog_pb2.Table(name=f"n{number}.wide", columns=columns, properties=properties, comment=comment)
        ids.append(client.create_table(table).table_id)
        client.alter_table(ids[-1], common_pb2.Alteration(comment=comment[1:]))
    names = {f"n{number}.wide" for number in range(count)}
    assert names <= {one.name for one in client.list_tables()}
    for table_id in ids[:3]:
        client.drop_table(table_id)
    assert names <= {one.name for one in client.list_tables(include_dropped=True)}
    assert client.undrop_table(ids[0]).comment == comment[1:]
    assert client.get_table("n0.wide").properties == properties
    assert len(list(client.list_schemas(ids[0]))) == 1


def test_views(client: Plain) -> None:
    column = catalog_pb2.ViewColumn(name="one", type="int")
    wanted = catalog_pb2.View(columns=[column], text="x" * (limits.VIEW_BYTES_MAX - 3_000))
    for number in range(70):
        wanted.name = f"v{number:03}"
        assert client.put_view(wanted).text == wanted.text
    assert client.rename_view("v069", "v070").text == wanted.text
    assert client.get_view("v070").text == wanted.text
    views: list[catalog_pb2.View] = []
    assert client.count("ListViews", lambda: views.extend(client.list_views(page_size=1_000))) > 1
    assert len(views) == 70


def test_tags_cursors_and_pins(client: Plain) -> None:
    table_id = new_table(client, "marks")
    for number in range(TAGS):
        client.create_tag(table_id, f"t{number:0127}", comment=TEXT)
    for number in range(limits.CURSORS_PER_TABLE_MAX):
        client.create_cursor(table_id, f"c{number:0127}")
    for _ in range(20):
        client.pin([read_pb2.TableVersion(table_id=table_id)])
    tags: list[read_pb2.Tag] = []
    assert client.count("ListTags", lambda: tags.extend(client.list_tags(page_size=1_000))) > 1
    assert len(tags) == TAGS
    assert {tag.comment for tag in tags} == {TEXT}
    assert len(list(client.list_cursors(page_size=1_000))) == limits.CURSORS_PER_TABLE_MAX
    assert {pin.principal.name for pin in client.list_pins(page_size=1_000)} == {NAME}
    txn = begin(client, table_id)
    moves = [
        wire.CursorMove(table_id=table_id, name=f"c{number:0127}", expected_version=0, version=0)
        for number in range(limits.CURSORS_PER_COMMIT_MAX)
    ]
    txn.commit([common_pb2.Change(table_id=table_id)], cursors=moves)


def changed(client: MetaClient, table_id: str) -> None:
    txn = begin(client, table_id, UPDATE)
    txn.register(table_id, [file(txn.txn_id, 0, partition=partition())])
    txn.commit([common_pb2.Change(table_id=table_id, reads=[common_pb2.Read()])])


def test_branches(client: Plain) -> None:
    for number in range(BRANCHES):
        client.create_branch(f"c{number}", comment=TEXT)
    limited = [f"{'n' * 120}{number}.{'t' * 120}" for number in range(100)]
    assert len(client.create_branch("limited", tables=limited).tables) == 100
    assert len(client.extend_branch("limited", 60_000).tables) == 100
    many = client.create_branches([f"many{number}" for number in range(200)], parent="limited", comment=TEXT)
    assert {len(branch.tables) for branch in many if isinstance(branch, catalog_pb2.Branch)} == {100}
    assert all(
        isinstance(drop, catalog_pb2.DropBranchResponse)
        for drop in client.drop_branches(map("many{}".format, range(200)))
    )
    assert client.count("ListBranches", lambda: list(client.list_branches(page_size=1_000))) > 1
    events = client.count("ListBranchEvents", lambda: list(client.list_branch_events(page_size=1_000)))
    assert events > 1
    table_ids = [new_table(client, f"branched{number}") for number in range(BRANCHED)]
    client.create_branch("wide")
    for number, table_id in enumerate(table_ids):
        changed(client, client.get_table(f"branched{number}@wide").table_id)
        changed(client, table_id)
    assert len(client.get_branch("wide").tables) == BRANCHED
    merge = client.merge_branch("wide")
    assert not merge.merged
    assert merge.left_out > 0
    assert len(merge.tables) + merge.left_out == BRANCHED
    assert len(merge.tables[0].conflict.partition) > 7_600
    refresh = client.refresh_branch("wide")
    assert not refresh.refreshed
    assert (len(refresh.tables), refresh.left_out) == (len(merge.tables), merge.left_out)
    assert client.clone_table(table_ids[0], "cloned").folder_id == table_ids[0]


def test_transactions_that_lost(client: Plain) -> None:
    table_id = new_table(client, "lost")
    txn = begin(client, table_id)
    txn.register(table_id, [file(txn.txn_id, 0, partition=partition())])
    txn.commit([common_pb2.Change(table_id=table_id)])
    reads = [common_pb2.Read()]
    losers = [begin(client, table_id, UPDATE, commit_message=TEXT) for _ in range(LOST // 2)]
    aborted = [begin(client, table_id, UPDATE, commit_message=TEXT) for _ in range(LOST)]
    winner = begin(client, table_id, UPDATE)
    winner.register(table_id, [file(winner.txn_id, 0, partition=partition())])
    winner.commit([common_pb2.Change(table_id=table_id, reads=reads)])
    change = common_pb2.Change(table_id=table_id, reads=reads)
    for number, loser in enumerate(losers):
        loser.register(table_id, [file(loser.txn_id, number, partition=partition())])
        if not number:
            assert loser.explain([change]).conflict.partition
            client.renew(loser.txn_id)
        with pytest.raises(ConflictError) as lost:
            loser.commit([change])
        assert len(lost.value.conflict.partition) > 7_600
    for one in aborted:
        one.abort(TEXT)
    found: list[wire.Transaction] = []
    listing = lambda: found.extend(client.list_transactions(table_id=table_id, page_size=1_000))  # noqa: E731
    assert client.count("ListTransactions", listing) > 1
    assert {loser.txn_id for loser in losers} <= {one.txn_id for one in found}
    assert {one.abort_reason for one in found if one.txn_id in {each.txn_id for each in aborted}} == {TEXT}
    assert client.get_transaction(losers[0].txn_id).conflict.winner_principal.name == NAME


def test_batches_and_sessions(client: Plain) -> None:
    table_id = new_table(client, "batch", partitioned=False)
    client.alter_columns(table_id, *[_added(number) for number in range(2)])
    old = wire.AppendRequest(table_id=table_id, schema_version=1)
    unknown = wire.AppendRequest(table_id=table_id)
    unknown.files.add(path="\U0001d535" * 1_024)
    for append in (old, unknown):
        outcomes = client.commit_batch([append] * limits.APPENDS_PER_BATCH_MAX)
        assert len(outcomes) == limits.APPENDS_PER_BATCH_MAX
        assert all(isinstance(one, ConflictError | MetaServiceError) for one in outcomes)
    session = client._open_session()
    assert session is not None
    frame = wire.SessionRequest()
    for number in range(6):
        frame.calls.add().ping.payload = bytes([number]) * limits.PING_BYTES_MAX
    replies = session.call(frame, 20.0)
    assert [len(reply.ping.payload) for reply in replies] == [limits.PING_BYTES_MAX] * 6


def _added(number: int) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(add=common_pb2.AddColumn(path=f"more{number}", type="int"))


def test_tasks_with_the_longest_partitions_and_paths(client: Plain) -> None:
    table_id = new_table(client, "tasks", keyed=True)
    for _ in range(2):
        txn = begin(client, table_id)
        of_txn = [
            file(txn.txn_id, number, partition=partition(), bucket=number, kind=common_pb2.FILE_KIND_DELTA)
            for number in range(BUCKETS)
        ]
        txn.register(table_id, of_txn)
        txn.commit([common_pb2.Change(table_id=table_id)])
    paths = {entry.file.path for entry in client.list_files(table_id)}
    planned = [task for page in client.plan_maintenance(table_id, operation=MINOR) for task in page.tasks]
    assert planned
    by_bucket: dict[int, list[str]] = {}
    for entry in client.list_files(table_id):
        by_bucket.setdefault(entry.file.bucket, []).append(entry.file.path)
    groups = [
        common_pb2.CompactionGroup(partition=partition(), bucket=bucket, inputs=inputs)
        for bucket, inputs in by_bucket.items()
    ]
    asked = client.request_tasks(table_id, MINOR, groups=groups)
    (task,) = asked.tasks
    assert len(task.groups) == BUCKETS
    assert len(client.get_task(task.task_id).groups) == BUCKETS
    assert [len(one.groups) for one in client.list_tasks(table_id=table_id)] == [BUCKETS]
    claim = client.claim_task(table_ids=[table_id])
    assert claim is not None
    claimed, _ = claim
    assert_whole(claimed, paths)
    pages: list[tasks_pb2.MaintenanceTask] = []
    assert client.count("GetTask", lambda: pages.append(client.get_task(task.task_id))) > 1
    assert_whole(pages[0], paths)
    assert not client.renew_task(task.task_id, claimed.fence).cancelled
    assert client.finish_task(task.task_id, claimed.fence, give_back=True).task_id == task.task_id
    assert len(client.cancel_task(task.task_id, reason="x").groups) == BUCKETS


def test_periodic_tasks(client: Plain) -> None:
    table_id = new_table(client, "periodic", partitioned=False)
    task = tasks_pb2.PeriodicTask(
        statement=WIDE * limits.PERIODIC_STATEMENT_CHARS_MAX,
        operation=DELETE,
        table_id=table_id,
        source_ids=[table_id],
        schedule="every hour",
        conditions=[tasks_pb2.HasData(table_id=table_id)],
        comment=TEXT,
    )
    for number in range(PERIODIC):
        task.name = f"{'n' * 120}{number:03}.{'t' * 120}"
        client.create_namespace(task.name.partition(".")[0])
        assert client.put_periodic_task(task).statement == task.statement
    listed: list[tasks_pb2.PeriodicTask] = []
    assert client.count("ListPeriodicTasks", lambda: listed.extend(client.list_periodic_tasks(page_size=1_000))) > 1
    assert len(listed) == PERIODIC
    error = WIDE * limits.PERIODIC_ERROR_CHARS_MAX
    for _ in range(5):
        task_id = client.ask_periodic_run(task.name).task.task_id
        for _ in range(4):
            begun = client.begin_periodic_run(task_id, NAME)
            client.end_periodic_run(task_id, begun.due_time_us, NAME, error=error)
            client.ask_periodic_run(task.name)
    assert client.get_periodic_task(task.name).error == error
    assert list(client.list_periodic_runs(task.name)) == []
    assert client.drop_periodic_task(task.name)


def assert_whole(task: tasks_pb2.MaintenanceTask, paths: set[str]) -> None:
    assert [len(group.inputs) for group in task.groups] == [2] * BUCKETS
    assert len({group.bucket for group in task.groups}) == BUCKETS
    assert {entry.file.path for group in task.groups for entry in group.inputs} == paths


def test_what_the_sweep_and_the_purge_ask(client: Plain) -> None:
    table_id = new_table(client, "swept", partitioned=False)
    txn = begin(client, table_id)
    staged = [file(txn.txn_id, number) for number in range(1_100)]
    txn.register(table_id, staged)
    paths = [one.path for one in staged]
    assert sorted(client.check_paths(table_id, paths).needed) == sorted(paths)
    raw = tasks_pb2.CheckPathsRequest(table_id=table_id, paths=paths)
    with pytest.raises(InvalidError, match="TOO_MANY_PATHS"):
        client._call(client._maintenance.CheckPaths, raw)
    assert list(client.list_purgeable(table_id)) == []
    assert [folder for page in client.list_sweepable() for folder in page.folders] == []
    assert list(client.check())[-1].done
    assert client.get_status().quotas


def test_the_largest_inlined_files(client: Plain) -> None:
    table_id = new_table(client, "inlined", partitioned=False)
    name = "x" * (limits.PATH_CHARS_MAX - 64)
    paths = []
    for number in range(6):
        txn_id = uuid7()
        one = common_pb2.DataFile(path=f"{txn_id}/{number}{name}", rows=1, content=b"x" * limits.INLINED_FILE_BYTES_MAX)
        one.bytes = len(one.content)
        client.append(table_id, [one], txn_id=txn_id)
        paths.append(one.path)
    found: list[read_pb2.InlinedFile] = []
    assert client.count("ReadInlined", lambda: found.extend(client.read_inlined(table_id, paths))) == 1
    assert [one.path for one in found] == paths
    with pytest.raises(GoneError, match="INLINED_GONE"):
        list(client.read_inlined(table_id, [f"{uuid7()}/{number}{name}" for number in range(3_500)]))


@pytest.mark.long
def test_the_command_shows_all_of_it(client: Plain, address: str) -> None:
    lines = [
        "table list -o json",
        "table show n3.wide",
        "table schemas n3.wide -o json",
        "namespace list",
        "files files -o json",
        "files files --explain --limit 3",
        "versions files -o json",
        "changes files --from 0 --to 5",
        "diff files --from 0",
        "tag list -o json",
        "cursor list -o json",
        "pins list",
        "txn list --limit 1000",
        "compaction list --all -o json",
        "compaction plan tasks --what minor -o json",
        "purge list",
    ]
    environment = Shell(address).environment()
    done = subprocess.run(
        in_one_process(*lines), cwd=ROOT, env=environment, capture_output=True, check=False, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert len(done.stdout) > 10 * limits.ANSWER_BYTES_MAX


@pytest.fixture(autouse=True)
def run(request: pytest.FixtureRequest) -> None:
    RUN.add(request.function.__name__)


def test_every_such_call_was_made(client: Plain, address: str) -> None:
    """Tests that another process ran, or nobody chose, are run again here: it counts on their calls."""
    for name, test in list(globals().items()):
        if name.startswith("test_") and name not in RUN and not hasattr(test, "pytestmark"):
            test(*(client, address)[: len(signature(test).parameters)])
    with Plain(address, use_session=False) as other:
        table_id = new_table(other, "one_by_one", partitioned=False)
        txn = begin(other, table_id)
        other.renew(txn.txn_id)
        txn.commit([common_pb2.Change(table_id=table_id)])
        other.append(table_id, [])
        made = {*client.recorder.methods, *other.recorder.methods}
    assert set(documented()) - made == set()
