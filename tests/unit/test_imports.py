"""What another table reads is not purged, whoever's it is."""

from pathlib import Path

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.model import Change, Entry, FileKind, Operation
from metaservice.store import keys
from metaservice.store.port import Batch, prefix_end
from tests.retention.rig import HOUR_MS, Rig


def take(rig: Rig, table_id: str, *paths: str) -> None:
    """An import into another table, past what the edge refuses."""
    entries = [Entry(path, "day=1", 0, FileKind.APPEND, 3, 10, b"", external=True) for path in paths]
    write(rig, table_id, Operation.INSERT, entries)


def write(rig: Rig, table_id: str, operation: Operation, entries: list[Entry]) -> None:
    own, rig.table_id = rig.table_id, table_id
    txn_id = rig.begin(operation)
    change: Change = rig.change(operation, entries)
    rig.commit(txn_id, change)
    rig.table_id = own


def lent() -> tuple[Rig, str, list[str]]:
    """A table with two dead files, one of which another table has imported."""
    rig = Rig(retain_hours=0)
    reader = rig.create("reader", 1)
    paths = rig.insert("lent", "own")
    take(rig, reader, f"file:/lake//{rig.table_id.upper()}/{paths[0]}")
    rig.overwrite("new")
    rig.pass_time(HOUR_MS)
    return rig, reader, paths


def test_a_dead_file_that_another_table_names_is_not_listed() -> None:
    rig, reader, paths = lent()
    assert rig.purgeable() == {paths[1]}
    rig.crash()
    assert rig.purgeable() == {paths[1]}
    write(rig, reader, Operation.OVERWRITE, [])
    assert rig.purgeable() == {paths[1]}, "a version that is kept names it"
    rig.pass_time(2 * HOUR_MS)
    assert rig.purgeable() == set(paths)


def test_it_is_listed_once_the_other_table_is_gone_for_good() -> None:
    rig, reader, paths = lent()
    rig.ask(lambda: rig.catalog.drop(reader, validate_only=False))
    assert rig.purgeable() == {paths[1]}
    rig.pass_time(2 * HOUR_MS)
    assert rig.purgeable() == set(paths)


def test_data_of_an_earlier_release_is_indexed_when_it_is_opened() -> None:
    rig, reader, paths = lent()
    take(rig, reader, "/in/live.parquet")
    before = {family: set(rig.store.cursor().scan(family, prefix_end(family))) for family in (b"e", b"x")}
    bare = Batch()
    for found in before.values():
        for key, _ in found:
            bare.delete(key)
    bare.delete(keys.upkeep_key("imports"))
    rig.store.write(bare)
    rig.store.sync()
    rig.crash()
    rig.ask(lambda: None)
    assert {family: set(rig.store.cursor().scan(family, prefix_end(family))) for family in before} == before
    assert rig.purgeable() == {paths[1]}
    with pytest.raises(MetaError, match="PATH_LIVE"):
        take(rig, reader, "file:///in/live.parquet")


def test_an_import_by_a_link_of_an_earlier_release_is_found_when_its_data_is_opened(tmp_path: Path) -> None:
    rig = Rig(retain_hours=0)
    reader = rig.create("reader", 1)
    (path,) = rig.insert("lent")
    file = tmp_path / "lake" / rig.table_id / path
    file.parent.mkdir(parents=True)
    file.touch()
    (tmp_path / "link").symlink_to(file.parent)
    take(rig, reader, f"{tmp_path}/link/{file.name}")
    bare = Batch()
    bare.delete(keys.upkeep_key("imports"))
    rig.store.write(bare)
    rig.store.sync()
    rig.crash()
    rig.overwrite("new")
    rig.pass_time(HOUR_MS)
    assert rig.purgeable() == set()


def test_a_file_is_live_once_in_whatever_partition() -> None:
    rig = Rig()
    take(rig, rig.table_id, "s3://in/a.parquet")
    twice = Entry("s3a://in//a.parquet", "day=2", 0, FileKind.APPEND, 3, 10, b"", external=True)
    with pytest.raises(MetaError, match="PATH_LIVE"):
        write(rig, rig.table_id, Operation.INSERT, [twice])
