"""row_level over gRPC and RocksDB: what winners wrote is read from the log, restarts included."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import pytest
from pyroaring import BitMap64

from metaservice.cli import command_line
from metaservice.client import MetaClient, Transaction
from metaservice.core import limits
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from tests.integration.service import Service, Stubs, data_file, day, reason_of, service

UPDATE = common_pb2.OPERATION_UPDATE
ROWS = 10
ID = 1  # the column's id
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs]]:
    with service(tmp_path_factory.mktemp("row_level") / "db") as both:
        yield both


class Rows:
    """An append table whose one file holds ten rows."""

    def __init__(self, stubs: Stubs, name: str) -> None:
        self.stubs = stubs
        self.table_id = stubs.create(name, profile="row_level")
        stubs.append(self.table_id)
        (entry,) = stubs.list_files(self.table_id)
        self.path, self.first = entry.file.path, entry.file.first_row_id

    def begin(self) -> str:
        return self.stubs.begin(self.table_id, operation=UPDATE)

    def change(
        self, txn_id: str, rows: Sequence[int], *, image: tuple[int, int] = (0, 0), low: int | None = None
    ) -> common_pb2.Change:
        """Hides rows by number, writes an image whose ids lie in a range, and read ids from `low` on."""
        file = data_file(txn_id, "image")
        low_value, high_value = (common_pb2.Value(integer=one) for one in image)
        file.stats.add(column_id=ID, min=low_value, max=high_value, nulls=0)
        deletes = common_pb2.DeleteSet(
            path=f"{txn_id}/deletes",
            partition=day(),
            bitmap=BitMap64([self.first + row for row in rows]).serialize(),
            touches=[self.path],
        )
        change = common_pb2.Change(table_id=self.table_id, files=[file], delete_sets=[deletes])
        if low is not None:
            literal = common_pb2.Value(integer=low)
            above = common_pb2.Compare(column="id", comparison=common_pb2.COMPARISON_GREATER_OR_EQUAL, value=literal)
            change.reads.add(predicate=common_pb2.Predicate(compare=above), changes_all=True)
        return change


def test_rows_decide_and_the_answer_stays_after_a_restart(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (running, stubs):
        rows = Rows(stubs, "t")
        same, other, matched, winner = (rows.begin() for _ in range(4))
        won = stubs.commit(winner, rows.change(winner, [3, 4], image=(15, 16)))
        assert won.WhichOneof("outcome") == "committed"
        running.kill()
        running.start()
        lost = stubs.commit(same, rows.change(same, [2, 3])).conflict
        assert lost.rule == common_pb2.CONFLICT_RULE_CONCURRENT_ROW_CHANGE
        assert list(lost.rows) == [rows.first + 3]
        apart = stubs.commit(other, rows.change(other, [5], low=20))
        assert apart.WhichOneof("outcome") == "committed", apart.conflict.message
        meets = stubs.commit(matched, rows.change(matched, [6], low=16)).conflict
        assert (meets.rule, meets.path) == (common_pb2.CONFLICT_RULE_CONCURRENT_APPEND, f"{winner}/image")
        running.kill()
        running.start()
        assert stubs.commit(same, rows.change(same, [2, 3])).conflict == lost
        assert list(stubs.get(same).conflict.rows) == [rows.first + 3]


def test_keys_that_differ_pass_and_a_writer_that_says_none_meets_the_bucket(served: tuple[Service, Stubs]) -> None:
    stubs = served[1]
    table_id = stubs.create("keyed", keyed=True, profile="row_level")

    def change(txn_id: str, *keys: int) -> common_pb2.Change:
        file = data_file(txn_id, kind=common_pb2.FILE_KIND_DELTA)
        file.rows = max(len(keys), 1)
        sets = [common_pb2.KeySet(partition=day(), hashes=keys)] if keys else []
        return common_pb2.Change(table_id=table_id, files=[file], key_sets=sets)

    winner, same, other, silent = (stubs.begin(table_id, operation=UPDATE) for _ in range(4))
    assert stubs.commit(winner, change(winner, 7, -8)).WhichOneof("outcome") == "committed"
    lost = stubs.commit(same, change(same, -8, 9)).conflict
    assert (lost.rule, list(lost.rows)) == (common_pb2.CONFLICT_RULE_CONCURRENT_ROW_CHANGE, [-8])
    assert stubs.commit(other, change(other, 9)).WhichOneof("outcome") == "committed"
    assert stubs.commit(silent, change(silent)).conflict.rule == common_pb2.CONFLICT_RULE_CONCURRENT_ROW_CHANGE


def test_a_commit_names_those_that_it_passed_by_its_columns(
    served: tuple[Service, Stubs], capfd: pytest.CaptureFixture[str]
) -> None:
    address = served[0].address
    with MetaClient(address) as client:
        names = [catalog_pb2.Column(name=name, type="bigint") for name in ("id", "a", "b", "c")]
        wanted = catalog_pb2.Table(name="cells", columns=names, primary_key=["id"], buckets=1, profile="row_level")
        wanted.properties["merge.engine"] = "partial"
        table_id = client.create_table(wanted).table_id
        intent = transaction_pb2.TableIntent(table_id=table_id, operation=UPDATE)

        def change(txn: Transaction, columns: Sequence[int], *keys: int) -> common_pb2.Change:
            file = common_pb2.DataFile(path=f"{txn.txn_id}/f", rows=len(keys), bytes=1, kind=common_pb2.FILE_KIND_DELTA)
            file.set_columns[:] = columns
            return common_pb2.Change(table_id=table_id, files=[file], key_sets=[common_pb2.KeySet(hashes=keys)])

        mine = client.begin([intent])
        mine.begin()
        winners = []
        for columns, keys in (([2, 3], [7]), ([2], [8]), ([3], [6, 7])):
            winners.append(client.begin([intent]))
            winners[-1].commit([change(winners[-1], columns, *keys)])
        passed = [
            common_pb2.PassedCommit(version=1, txn_id=winners[0].txn_id, columns=[2, 3], own_columns=[4]),
            common_pb2.PassedCommit(version=3, txn_id=winners[2].txn_id, columns=[3], own_columns=[4]),
        ]
        own = change(mine, [4], 7, 9)
        assert list(client.explain(mine.txn_id, [own]).committed.tables[0].passed) == passed
        assert list(mine.commit([own]).tables[0].passed) == passed
        served[0].kill()
        served[0].start()
        assert list(client.get_transaction(mine.txn_id).committed.tables[0].passed) == passed
        command_line.run(("why", mine.txn_id), {"LAKETX_SERVER": address})
        shown = " ".join(capfd.readouterr().out.split())
        assert f"passed version 1 ({winners[0].txn_id}) of cells" in shown
        assert "that set a, b, this sets c" in shown
        assert winners[1].txn_id not in shown


def test_an_append_of_a_transaction_over_two_tables_is_not_blind(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (running, stubs):
        rows, beside = Rows(stubs, "t"), stubs.create("beside")
        mine = rows.begin()
        both = stubs.begin(rows.table_id, beside)
        adds = [common_pb2.Change(table_id=one, files=[data_file(both, one)]) for one in (rows.table_id, beside)]
        assert stubs.commit(both, *adds).WhichOneof("outcome") == "committed"
        running.kill()
        running.start()
        lost = stubs.commit(mine, rows.change(mine, [1], low=0)).conflict
        assert lost.rule == common_pb2.CONFLICT_RULE_CONCURRENT_APPEND


def test_a_registered_update_is_not_doomed_before_its_keys_are_known(served: tuple[Service, Stubs]) -> None:
    stubs = served[1]
    table_id = stubs.create("doomed", keyed=True, profile="row_level")
    mine, winner = (stubs.begin(table_id, operation=UPDATE) for _ in range(2))
    stubs.register(mine, table_id, data_file(mine, kind=common_pb2.FILE_KIND_DELTA))
    file = data_file(winner, kind=common_pb2.FILE_KIND_DELTA)
    stubs.commit(winner, common_pb2.Change(table_id=table_id, files=[file]))
    renewed = stubs.txns.RenewTransaction(transaction_pb2.RenewTransactionRequest(txn_id=mine), timeout=30)
    assert not renewed.HasField("doomed")


def test_a_compaction_whose_digests_differ_leaves_the_table_as_it_was(served: tuple[Service, Stubs]) -> None:
    stubs = served[1]
    rows = Rows(stubs, "digests")
    txn_id = stubs.begin(rows.table_id, operation=common_pb2.OPERATION_CLUSTER)
    group = common_pb2.CompactionGroup(
        partition=day(),
        inputs=[rows.path],
        outputs=[f"{txn_id}/f"],
        input_digest=b"one",
        output_digest=b"two",
        input_rows=ROWS,
        output_rows=ROWS,
    )
    change = common_pb2.Change(table_id=rows.table_id, files=[data_file(txn_id)], groups=[group])
    before = stubs.list_files(rows.table_id)
    with pytest.raises(grpc.RpcError) as refused:
        stubs.commit(txn_id, change)
    assert reason_of(refused.value) == "COMPACTION_DIGEST_MISMATCH"
    assert stubs.list_files(rows.table_id) == before
    change.groups[0].output_digest = b"one"
    assert stubs.commit(txn_id, change).WhichOneof("outcome") == "committed"


def many_keys(change: common_pb2.Change) -> None:
    change.key_sets.add(partition=day(), hashes=range(limits.KEYS_EXACT_MAX + 1))


def keys_twice(change: common_pb2.Change) -> None:
    for _ in range(2):
        change.key_sets.add(partition=day(), hashes=range(ROWS))


def keys_of_an_append_table(change: common_pb2.Change) -> None:
    change.key_sets.add(partition=day(), hashes=range(ROWS))


def in_file(change: common_pb2.Change, *spans: tuple[int, int]) -> None:
    change.delete_sets[0].bitmap = b""
    change.delete_sets[0].rows, change.delete_sets[0].row_id_min, change.delete_sets[0].row_id_max = 2, 5, 9
    for first, last in spans:
        change.delete_sets[0].ranges.add(first=first, last=last)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (many_keys, "TOO_MANY_KEYS"),
        (keys_twice, "KEY_SET_TWICE"),
        (keys_of_an_append_table, "KEY_SET_NOT_ALLOWED"),
        (lambda change: in_file(change, (5, 6), (6, 9)), "ROW_ID_RANGE_INVALID"),
        (lambda change: in_file(change, (5, 8)), "ROW_ID_RANGE_INVALID"),
        (
            lambda change: in_file(change, *((n, n) for n in range(5, 5 + 4 * limits.ROW_RANGES_MAX, 2))),
            "TOO_MANY_RANGES",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    served: tuple[Service, Stubs], spoil: Callable[[common_pb2.Change], None], reason: str
) -> None:
    stubs = served[1]
    rows = Rows(stubs, f"refused_{next(NUMBERS)}")
    txn_id = rows.begin()
    change = rows.change(txn_id, [1])
    spoil(change)
    with pytest.raises(grpc.RpcError) as refused:
        stubs.commit(txn_id, change)
    assert reason_of(refused.value) == reason


def test_a_digest_has_a_bound(served: tuple[Service, Stubs]) -> None:
    stubs = served[1]
    rows = Rows(stubs, "long_digest")
    txn_id = stubs.begin(rows.table_id, operation=common_pb2.OPERATION_CLUSTER)
    long = common_pb2.CompactionGroup(partition=day(), inputs=[rows.path], input_digest=bytes(65))
    with pytest.raises(grpc.RpcError) as refused:
        stubs.commit(txn_id, common_pb2.Change(table_id=rows.table_id, groups=[long]))
    assert reason_of(refused.value) == "DIGEST_TOO_LONG"


def test_a_transaction_that_hundreds_overtook_is_judged_against_each(served: tuple[Service, Stubs]) -> None:
    """Winners are judged many at once; the one that wrote a key of mine, or hid my row, is still named."""
    stubs = served[1]
    table_id = stubs.create("overtaken", profile="row_level", keyed=True)
    mine = [stubs.begin(table_id, operation=UPDATE) for _ in range(2)]

    def upsert(txn_id: str, key: int) -> transaction_pb2.CommitTransactionResponse:
        file = data_file(txn_id, "delta")
        file.kind, file.rows = common_pb2.FILE_KIND_DELTA, 1
        sets = [common_pb2.KeySet(partition=day(), hashes=[key])]
        return stubs.commit(txn_id, common_pb2.Change(table_id=table_id, files=[file], key_sets=sets))

    winners = [upsert(stubs.begin(table_id, operation=UPDATE), key) for key in range(300)]
    assert upsert(mine[0], 300).WhichOneof("outcome") == "committed"
    lost = upsert(mine[1], 123).conflict
    assert lost.rule == common_pb2.CONFLICT_RULE_CONCURRENT_ROW_CHANGE
    assert list(lost.rows) == [123]
    assert lost.winner_version == winners[123].committed.tables[0].version
