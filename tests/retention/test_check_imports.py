"""A check of the indexes of external files: every key that is lost, or that is there for nothing, is found."""

from collections.abc import Callable

import pytest

from metaservice.core.table.model import Entry, FileKind, Operation
from metaservice.service.operate.check import StoreCheck
from metaservice.store import keys
from metaservice.store.engines.memory import MemoryStore
from metaservice.store.records.tables import decode_live, encode_live
from tests.retention.rig import HOUR_MS, Rig

Entries = dict[bytes, bytes]
IMPORT, FOREIGN = b"x", b"e"


def problems_of(found: Entries) -> list[str]:
    cursor = MemoryStore(found).cursor()
    return [problem for progress in StoreCheck(cursor, lambda: None).run() for problem in progress.problems]


def words_of(found: Entries) -> set[str]:
    return {problem.split(" ")[0] for problem in problems_of(found)}


def all_of(rig: Rig) -> Entries:
    return dict(rig.store.cursor().scan(b"\x01", b"\xff"))


def take(rig: Rig, operation: Operation, *paths: str) -> None:
    entries = [Entry(path, "day=1", 0, FileKind.APPEND, 3, 10, b"", external=True) for path in paths]
    rig.commit(rig.begin(operation), rig.change(operation, entries))


@pytest.fixture
def rig() -> Rig:
    """A table that has imported files of another one's folder, as an earlier release let it: two live, two past."""
    rig = Rig()
    lender, rig.table_id = rig.table_id, rig.create("reader", 24)
    for number in range(5):
        take(rig, Operation.INSERT, f"s3://in/{number}.parquet")
    take(rig, Operation.INSERT, f"/lake/{lender}/old", f"s3://lake/{lender}/older")
    take(rig, Operation.OVERWRITE, f"/lake/{lender}/a%20b", "s3a://in/new.parquet")
    take(rig, Operation.INSERT, f"/lake/{lender}/old")
    return rig


@pytest.fixture
def entries(rig: Rig) -> Entries:
    return all_of(rig)


def of(entries: Entries, family: bytes) -> list[bytes]:
    return sorted(key for key in entries if key[:1] == family)


def test_indexes_that_are_whole_have_no_problems(entries: Entries) -> None:
    assert (len(of(entries, IMPORT)), len(of(entries, FOREIGN))) == (3, 4)
    assert problems_of(entries) == []


def test_every_lost_key_is_found(entries: Entries) -> None:
    for family, word in ((IMPORT, "IMPORT_MISSING"), (FOREIGN, "FOREIGN_USE_MISSING")):
        for lost in of(entries, family):
            left = {key: value for key, value in entries.items() if key != lost}
            assert words_of(left) == {word}


def test_every_key_that_should_not_be_there_is_found(entries: Entries) -> None:
    """Another file, partition, path, holder or version: whichever byte behind the table's id differs."""
    for family, word in ((IMPORT, "IMPORT_WITHOUT_ENTRY"), (FOREIGN, "FOREIGN_USE_WITHOUT_ENTRY")):
        for key in of(entries, family):
            path_end = key.index(b"\x00", 17) if family == FOREIGN else 17  # the path is only said
            for place in range(path_end, len(key)):
                other = key[:place] + bytes([key[place] ^ 0x55]) + key[place + 1 :]
                assert words_of(entries | {other: b""}) & {word, "RECORD_UNREADABLE"}, (key, place)
            assert words_of(entries | {key[:20]: b""})


@pytest.mark.parametrize("family", [b"I", b"P"])
def test_keys_without_their_entry_are_found(entries: Entries, family: bytes) -> None:
    lost = next(key for key in of(entries, family) if b"/old" in key)
    gone = {key: value for key, value in entries.items() if key != lost and not (key[:1] == b"Q" and b"/old" in key)}
    assert "FOREIGN_USE_WITHOUT_ENTRY" in words_of(gone)
    assert ("IMPORT_WITHOUT_ENTRY" in words_of(gone)) == (family == b"I")


def test_an_entry_that_is_no_longer_said_to_be_external_is_found(entries: Entries) -> None:
    key = next(key for key in of(entries, b"I") if b"/old" in key)
    live, removed = decode_live(entries[key])
    live.entry.external = False
    found = words_of(entries | {key: encode_live(live, removed)})
    assert {"IMPORT_WITHOUT_ENTRY", "FOREIGN_USE_WITHOUT_ENTRY"} <= found


def forget(rig: Rig) -> None:
    rig.pass_time(30 * HOUR_MS)


def drop(rig: Rig) -> None:
    rig.ask(lambda: rig.catalog.drop(rig.table_id, validate_only=False))


def drop_and_forget(rig: Rig) -> None:
    drop(rig)
    forget(rig)


@pytest.mark.parametrize("happens", [forget, drop, drop_and_forget, Rig.crash])
def test_nothing_is_found_as_retention_and_drops_go_on(rig: Rig, happens: Callable[[Rig], object]) -> None:
    happens(rig)
    rig.ask(lambda: None)
    assert problems_of(all_of(rig)) == []


def test_data_that_was_never_opened_by_this_release_is_not_asked(entries: Entries) -> None:
    bare = {key: value for key, value in entries.items() if key[:1] not in (IMPORT, FOREIGN)}
    assert problems_of(bare)
    del bare[keys.upkeep_key("imports")]
    assert problems_of(bare) == []
