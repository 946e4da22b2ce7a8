"""What a check must find: every key that is lost, every record that says something else; and what it must not find."""

import shutil
import struct
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from slatedb import uniffi as slatedb

from metaservice.core.errors import MetaError
from metaservice.service.operate.check import StoreCheck
from metaservice.service.operate.restoring import begin_history
from metaservice.store import entry_keys, keys
from metaservice.store.engines.memory import MemoryStore
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.engines.slate import SlateStore
from metaservice.store.history import read_history, read_purge_hold
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import Batch, Store
from metaservice.store.records.tables import decode_live
from metaservice.store.records.transactions import decode_txn
from protos.laketx.storage.v1 import records_pb2 as records
from protos.laketx.v1 import transaction_pb2
from tests.conformance.play import new_uuid7
from tests.fixtures.make_data import FIXTURES
from tests.integration.service import PRINCIPAL, TIMEOUT_S, data_file, service

MANY = 600  # more than a commit record holds by itself
Entries = dict[bytes, bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commits of every kind, one of them with its entries in chunks."""
    path = tmp_path_factory.mktemp("check") / "data"
    shutil.copytree(FIXTURES / "data-v1", path)
    with service(path, "--lease-ms", "600000") as (_, stubs):
        table_id = stubs.create("many", profile="delta_write_serializable")
        txn_id = new_uuid7()
        files = [data_file(txn_id, str(number)) for number in range(MANY)]
        request = transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=files, principal=PRINCIPAL)
        stubs.txns.Append(request, timeout=TIMEOUT_S)
        stubs.alter(table_id, "zstd")
        stubs.append(table_id)
    return path


@pytest.fixture(scope="module")
def entries(folder: Path) -> Entries:
    return read(folder)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Entries:
    """The same without the large commit: cheap enough to check for every key."""
    path = tmp_path_factory.mktemp("few") / "data"
    shutil.copytree(FIXTURES / "data-v1", path)
    with service(path) as (_, stubs):  # which does the upkeep of older data
        table_id, txn_id = stubs.create("inlined", profile="delta_write_serializable"), new_uuid7()
        file = data_file(txn_id, "inlined")
        file.content, file.bytes = b"rows", 4
        request = transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table_id, files=[file], principal=PRINCIPAL)
        stubs.txns.Append(request, timeout=TIMEOUT_S)
    return read(path)


def read(folder: Path) -> Entries:
    store = RocksStore(folder)
    try:
        return dict(store.cursor().scan(b"\x01", b"\xff"))
    finally:
        store.close()


def problems_of(store: Store, table_id: str = "") -> list[str]:
    return [
        problem for progress in StoreCheck(store.cursor(), lambda: None).run(table_id) for problem in progress.problems
    ]


def words_of(found: Entries) -> set[str]:
    return {problem.split(" ")[0] for problem in problems_of(MemoryStore(found))}


def one(entries: Entries, prefix: bytes, number: int = 0) -> bytes:
    return sorted(key for key in entries if key.startswith(prefix))[number]


def edited(record_type: type, change: Callable[..., object]) -> Callable[[bytes], bytes]:
    def edit(raw: bytes) -> bytes:
        record = record_type.FromString(raw)  # type: ignore[attr-defined]
        change(record)
        return bytes(record.SerializeToString())

    return edit


def test_a_sound_store_has_no_problems(entries: Entries) -> None:
    assert {key[:1] for key in entries} >= set(map(bytes, zip(b"NTDLKWIPRAXOSQJ"))), "every kind of key is there"
    assert problems_of(MemoryStore(entries)) == []


def test_a_store_on_object_storage_is_checked_alike(few: Entries) -> None:
    for lost in [None, *(one(few, prefix) for prefix in sorted({key[:1] for key in few}))]:
        left = {key: value for key, value in few.items() if key != lost}
        on_slate = SlateStore(ObjectPlace("tests", "meta"), bucket=slatedb.ObjectStore.resolve("memory:///"))
        batch = Batch()
        batch.ops = list(left.items())
        on_slate.write(batch)
        on_slate.sync()
        assert problems_of(on_slate) == problems_of(MemoryStore(left)), lost
        on_slate.close()


def test_every_lost_key_is_found(few: Entries) -> None:
    """But for what nothing else refers to, and what may be gone by design: an outcome, a history's old end, a drop."""
    unfound = []
    for key in sorted(few):
        is_outcome = key[:1] == b"X" and keys.open_key(key[1:]) not in few
        is_oldest = key[:1] == b"L" and keys.split_versioned(key)[1] == 0
        if key[:1] not in (b"C", b"D", b"S", b"M", b"!") and not is_outcome and not is_oldest:
            left = {other: value for other, value in few.items() if other != key}
            if not problems_of(MemoryStore(left)):
                unfound.append(key)
    assert unfound == []


def test_every_key_that_should_not_be_there_is_found(few: Entries) -> None:
    """An entry under another number, path or id, with a true neighbour's content."""
    unfound = []
    for key in sorted(few):
        grown = few | {key[:-1] + bytes([key[-1] ^ 0x55]): few[key]}
        if key[:1] in b"NLWIPXOS" and not problems_of(MemoryStore(grown)):
            unfound.append(key)
    assert unfound == []


@pytest.mark.parametrize(
    ("kind", "number", "word"),
    [
        (b"L", -1, "LOG_CUT_SHORT"),
        (b"L", 2, "VERSIONS_MISSING"),
        (b"L", 2, "COMMIT_MISSING"),
        (b"W", -1, "TIME_NOT_FOUND"),
        (b"I", 0, "LOG_AND_INDEX_DIFFER"),
        (b"P", 0, "LOG_AND_INDEX_DIFFER"),
        (b"P", 0, "SPAN_WITHOUT_ENTRY"),
        (b"Q", 0, "SPAN_MISSING"),
        (b"J", 0, "IDLE_MARK_WRONG"),
        (b"A", 0, "APPLICATION_ID_MISSING"),
        (b"n", 0, "INLINED_ROWS_MISSING"),
        (b"i", 0, "INLINED_COUNT_WRONG"),
        (b"T", 0, "METADATA_MISSING"),
        (b"N", 0, "TABLE_WITHOUT_NAME"),
        (b"O", 0, "TRANSACTION_STATE_WRONG"),
    ],
)
def test_a_lost_key_is_called_by_its_name(few: Entries, kind: bytes, number: int, word: str) -> None:
    lost = one(few, kind, number)
    assert word in words_of({key: value for key, value in few.items() if key != lost})


def test_lost_and_foreign_chunks_are_found(entries: Entries) -> None:
    for key in (one(entries, b"K"), one(entries, b"K", -1)):
        assert words_of({other: value for other, value in entries.items() if other != key}) & {"CHUNKS_WRONG"}
        assert words_of(entries | {key[:-1] + b"\x55": entries[key]}) == {"CHUNKS_WRONG"}
        at_creation = key[:17] + bytes(8) + key[25:]
        assert "CHUNKS_WRONG" in words_of(entries | {at_creation: entries[key]})


@pytest.mark.parametrize(
    ("kind", "record", "change", "word"),
    [
        (b"I", records.EntryRecord, lambda r: setattr(r, "rows", r.rows + 1), "LOG_AND_INDEX_DIFFER"),
        (b"I", records.EntryRecord, lambda r: setattr(r, "payload", b"x"), "LOG_AND_INDEX_DIFFER"),
        (b"I", records.EntryRecord, lambda r: setattr(r, "added", 0), "LOG_AND_INDEX_DIFFER"),
        (b"I", records.EntryRecord, lambda r: setattr(r, "data_version", 99), "INDEX_ENTRY_FROM_THE_FUTURE"),
        (b"I", records.EntryRecord, lambda r: setattr(r, "removed", 1), "INDEX_ENTRY_MISPLACED"),
        (b"I", records.EntryRecord, lambda r: setattr(r, "path", "other"), "INDEX_ENTRY_MISPLACED"),
        (b"P", records.EntryRecord, lambda r: setattr(r, "removed", 2**40), "INDEX_ENTRY_MISPLACED"),
        (b"P", records.EntryRecord, lambda r: setattr(r, "bytes", 1), "LOG_AND_INDEX_DIFFER"),
        (b"L", records.CommitRecord, lambda r: setattr(r, "version", r.version + 1), "COMMIT_OF_ANOTHER_VERSION"),
        (b"L", records.CommitRecord, lambda r: setattr(r, "time_us", r.time_us - 1), "TIME_NOT_FOUND"),
        (b"L", records.CommitRecord, lambda r: setattr(r, "time_us", 1), "TIME_GOES_BACK"),
        (b"L", records.CommitRecord, lambda r: setattr(r, "files_added", 77), "COUNTER_WRONG"),
        (b"L", records.CommitRecord, lambda r: setattr(r, "files_removed", 77), "COUNTER_WRONG"),
        (b"L", records.CommitRecord, lambda r: setattr(r, "added_chunks", 7), "CHUNKS_WRONG"),
        (b"L", records.CommitRecord, lambda r: setattr(r.added[0], "kind", 77), "LOG_AND_INDEX_DIFFER"),
        (b"L", records.CommitRecord, lambda r: setattr(r.added[0], "rows", 77), "LOG_AND_INDEX_DIFFER"),
        (b"L", records.CommitRecord, lambda r: r.app_ids.append("nobody"), "APPLICATION_ID_MISSING"),
        (b"K", records.ChunkRecord, lambda r: r.entries.pop(), "LOG_AND_INDEX_DIFFER"),
        (b"T", records.TableRecord, lambda r: setattr(r, "table_id", "other"), "METADATA_OF_ANOTHER_TABLE"),
        (b"X", records.TransactionRecord, lambda r: setattr(r, "txn_id", "other"), "TRANSACTION_MISPLACED"),
        (b"X", records.TransactionRecord, lambda r: setattr(r, "state", 4 - r.state), "TRANSACTION_STATE_WRONG"),
    ],
)
def test_a_record_that_says_something_else_is_found(
    entries: Entries, kind: bytes, record: type, change: Callable[..., object], word: str
) -> None:
    place = (
        -1
        if kind != b"X"
        else next(
            n for n, key in enumerate(sorted(k for k in entries if k[:1] == b"X")) if keys.open_key(key[1:]) in entries
        )
    )
    key = one(entries, kind, place)
    assert word in words_of(entries | {key: edited(record, change)(entries[key])})


def test_row_ids_that_were_given_twice_are_found(entries: Entries) -> None:
    key = next(key for key in sorted(entries) if key[:1] == b"R" and struct.unpack(">Q", entries[key])[0] > 1)
    assert "ROW_IDS_BEYOND_THE_NEXT" in words_of(entries | {key: struct.pack(">Q", 1)})
    live = [each for each in sorted(entries) if each.startswith(entry_keys.live_prefix(key[1:]))]
    first = records.EntryRecord.FromString(entries[live[0]]).first_row_id
    shifted = edited(records.EntryRecord, lambda r: setattr(r, "first_row_id", first + 1))(entries[live[1]])
    assert "ROW_IDS_OVERLAP" in words_of(entries | {live[1]: shifted})


def test_a_commit_that_its_transaction_does_not_know_is_found(entries: Entries) -> None:
    key = one(entries, b"L", -1)
    other = next(records.TransactionRecord.FromString(v).txn_id for k, v in entries.items() if k[:1] == b"X")
    assert "TRANSACTION_DISAGREES" in words_of(
        entries | {key: edited(records.CommitRecord, lambda r: setattr(r, "txn_id", other))(entries[key])}
    )


def test_bytes_that_are_no_record_are_told_and_end_nothing(few: Entries) -> None:
    for kind in b"TLIPXS":
        for number in (0, -1):
            key = one(few, bytes([kind]), number)
            for raw in (b"", b"\xff\xff\xff", few[key][:-1], b"\x08\x96\x01" * 3):
                assert problems_of(MemoryStore(few | {key: raw})), (key, raw)


def test_every_flipped_byte_is_survived(few: Entries) -> None:
    """Most are found; none stops the check."""
    for number, (key, raw) in enumerate(sorted(few.items())):
        if raw:
            place = number % len(raw)
            flipped = raw[:place] + bytes([raw[place] ^ 0x41]) + raw[place + 1 :]
            assert isinstance(words_of(few | {key: flipped}), set)


def test_a_history_that_was_cut_at_its_old_end_has_no_problems(entries: Entries) -> None:
    """Commits, times, chunks and what was taken out by then are gone; what is live stays."""
    tables = {key[1:17] for key in entries if key[:1] == b"L"}
    for raw_id in tables:
        head = max(keys.split_versioned(key)[1] for key in entries if key.startswith(keys.commits_prefix(raw_id)))
        for oldest in range(1, head + 1):
            kept = dict(entries)
            for key in entries:
                old = key[1:17] == raw_id and (
                    (key[:1] in b"LKPJ" and keys.split_versioned(key)[1] < oldest)
                    or (
                        key[:1] == b"Q"
                        and entry_keys.decode_span(key, len(entry_keys.partition_of(key).encode()))[0] < oldest
                    )
                    or (key[:1] == b"W" and keys.decode_version(entries[key]) < oldest)
                )
                if old:
                    del kept[key]
            assert problems_of(MemoryStore(kept)) == [], oldest


def test_what_retention_took_from_the_index_is_not_missed(few: Entries) -> None:
    """Below the horizon any of what was taken out may be gone, while the log still has it; above it nothing may."""
    for raw_id in {key[1:17] for key in few if key[:1] == b"P"}:
        past = sorted(key for key in few if key.startswith(entry_keys.past_prefix(raw_id)))
        for horizon in range(keys.split_versioned(past[-1])[1] + 1):
            kept = few | {keys.oldest_key(raw_id): keys.encode_version(horizon)}
            assert problems_of(MemoryStore(kept)) == []
            for number, key in enumerate(past):
                if number % 2 or keys.split_versioned(key)[1] > horizon:
                    kept.pop(key)
                    kept.pop(span_of(raw_id, few[key]))
            lost = [key for key in past if keys.split_versioned(key)[1] > horizon]
            assert bool(problems_of(MemoryStore(kept))) == bool(lost)


def span_of(raw_id: bytes, raw: bytes) -> bytes:
    live, removed = decode_live(raw)
    entry = live.entry
    return entry_keys.span_key(raw_id, live.added, removed, entry.partition, entry.bucket, entry.path)


def test_the_records_of_a_table_that_is_being_purged_are_not_missed(few: Entries) -> None:
    raw_id = one(few, b"D")[1:]
    left = {key: value for key, value in few.items() if key[:17] != b"I" + raw_id}
    assert problems_of(MemoryStore(left))
    assert problems_of(MemoryStore(left | {keys.drop_begun_key(raw_id): b""})) == []


def test_a_store_that_begins_another_history_is_sound(few: Entries) -> None:
    """No transaction is open or can be adopted; what lost ones staged stays, for the purge to find."""
    store = MemoryStore(few)
    assert begin_history(store, "aa", 7).epoch == "2-aa"
    after = dict(store.cursor().scan(b"\x01", b"\xff"))
    assert problems_of(store) == []
    txns = {key[1:]: decode_txn(raw) for key, raw in after.items() if key[:1] == b"X"}
    was_open = {key[1:] for key in few if key[:1] == b"O"}
    assert [key for key in after if key[:1] == b"O"] == []
    assert {txns[raw_id].abort_reason for raw_id in was_open} == {"HISTORY_CHANGED"}
    assert not any(txn.adoptable for txn in txns.values())
    staged = {key[1:17] for key in few if key[:1] == b"S"}
    assert {key[1:17] for key in after if key[:1] == b"S"} == staged - was_open != staged
    assert (read_history(store).since_us, " 1-" in read_purge_hold(store)) == (7, True)


def test_one_table_alone(entries: Entries) -> None:
    store = MemoryStore(entries)
    batch = Batch()
    lost = one(entries, b"I")
    batch.delete(lost)
    store.write(batch)

    broken = str(uuid.UUID(bytes=lost[1:17]))
    sound = next(str(uuid.UUID(bytes=key[1:17])) for key in entries if key[:1] == b"I" and key[1:17] != lost[1:17])
    assert problems_of(store, broken)
    assert problems_of(store, sound) == []
    with pytest.raises(MetaError) as caught:
        problems_of(store, new_uuid7())
    assert caught.value.reason == "TABLE_UNKNOWN"


def test_findings_are_bounded(entries: Entries) -> None:
    table = one(entries, b"K")[1:17]
    lost = [key for key in entries if key.startswith(entry_keys.live_prefix(table))]
    assert len(lost) > MANY
    found = problems_of(MemoryStore({key: value for key, value in entries.items() if key not in set(lost)}))
    assert len(found) < 110
    assert any(problem.startswith("MORE_OF_THE_SAME") for problem in found)
