"""A repository of backups against a plain dict: what a kept backup names stays, and what is damaged is found."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.errors import MetaError
from metaservice.store.backups import folders
from metaservice.store.backups.folders import BackupUnusable, Manifest
from metaservice.store.backups.objects import FolderObjects, folder_of, objects_at
from metaservice.store.backups.repository import (
    BACKUPS,
    FILES,
    RUNNING,
    Repository,
    Stored,
    backup_id_at,
    first_with_all_of,
    plan_prune,
)
from metaservice.store.engines.copying import diff_entries

SECOND_US = 1_000_000
Content = dict[str, bytes]


class Counting(FolderObjects):
    """Counts the files that are put."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.put_files: list[str] = []
        self.dies_after = -1  # so many puts, and before a manifest at the latest

    def put(self, name: str, source: Path | bytes) -> None:
        if name.startswith((FILES, BACKUPS)):
            is_late = len(self.put_files) >= self.dies_after or name.startswith(BACKUPS)
            if self.dies_after >= 0 and is_late:
                raise OSError("the storage does not answer")
            self.put_files.append(name)
        super().put(name, source)


def opened(root: Path) -> tuple[Repository, Counting]:
    root.mkdir(exist_ok=True)
    objects = Counting(root)
    return Repository(objects, f"file://{root}"), objects


def manifest_of(folder: Path, begin_us: int) -> Manifest:
    return Manifest("", "1", 1, "1-a", begin_us, begin_us, [], folders.list_digests(folder))


def make(repository: Repository, scratch: Path, number: int, content: Content, *, full: bool = False) -> str:
    folder = scratch / f"checkpoint-{number}"
    folder.mkdir()
    for name, raw in content.items():
        (folder / name).write_bytes(raw)
    begin_us = number * SECOND_US
    backup_id = backup_id_at(begin_us, "x")
    repository.upload(backup_id, folder, manifest_of(folder, begin_us), full=full, progress=lambda done, total: None)
    return backup_id


def fetched(repository: Repository, backup_id: str, target: Path) -> Content:
    repository.fetch(repository.find(backup_id), target, lambda done, total: None)
    return {path.name: path.read_bytes() for path in target.iterdir()}


contents = st.dictionaries(st.sampled_from(["CURRENT", "1.sst", "2.sst", "3.sst", "4.log"]), st.binary(max_size=3))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("make"), contents),
        st.tuples(st.just("cut off"), contents),
        st.tuples(st.just("prune"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
    ),
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(steps)
def test_every_backup_that_is_kept_can_be_fetched(tmp_path_factory: pytest.TempPathFactory, history: list) -> None:  # type: ignore[type-arg]
    scratch = tmp_path_factory.mktemp("scratch")
    repository, objects = opened(scratch / "repository")
    model: dict[str, Content] = {}
    for number, (what, argument) in enumerate(history, 1):
        if what == "make":
            model[make(repository, scratch, number, argument)] = argument
        elif what == "cut off":
            objects.dies_after = len(objects.put_files) + number % 4
            with pytest.raises(OSError, match="does not answer"):
                make(repository, scratch, number, argument)
            objects.dies_after = -1
        elif what == "prune":
            gone = plan_prune(repository.list_ids(), argument)
            assert gone == sorted(model)[: max(len(model) - argument, 0)]
            repository.delete("p", gone, dry_run=False)
            model = {backup_id: model[backup_id] for backup_id in sorted(model)[-argument:]}
        elif model:
            backup_id = sorted(model)[argument % len(model)]
            repository.delete("d", [backup_id], dry_run=False)
            del model[backup_id]
    assert repository.list_ids() == sorted(model)
    for backup_id, content in model.items():
        assert fetched(repository, backup_id, scratch / f"fetched-{backup_id}") == content
    repository.delete("last", [], dry_run=False)
    needed = {file.digest for one in repository.read_all() for file in one.manifest.files}
    assert {one.name.removeprefix(FILES) for one in objects.list(FILES)} == needed, "nothing else is left"
    assert list(objects.list(RUNNING)) == []


def test_only_what_is_new_is_uploaded(tmp_path: Path) -> None:
    repository, objects = opened(tmp_path / "repository")
    first = {"1.sst": b"one", "2.sst": b"two", "CURRENT": b"a"}
    one = make(repository, tmp_path, 1, first)
    assert len(objects.put_files) == 4
    assert objects.put_files[-1] == f"{BACKUPS}{one}.json", "the manifest comes last"
    objects.put_files.clear()
    make(repository, tmp_path, 2, {**first, "3.sst": b"three"})
    assert len(objects.put_files) == 2
    objects.put_files.clear()
    make(repository, tmp_path, 3, {"9.sst": b"one"})
    assert len(objects.put_files) == 1, "the same bytes under another name are there already"
    objects.put_files.clear()
    make(repository, tmp_path, 4, first, full=True)
    assert len(objects.put_files) == 4


def test_a_dry_run_deletes_nothing(tmp_path: Path) -> None:
    repository, _ = opened(tmp_path / "repository")
    one = make(repository, tmp_path, 1, {"1.sst": b"one"})
    make(repository, tmp_path, 2, {"2.sst": b"three"})
    would = repository.delete("x", [one], dry_run=True)
    assert (would.backup_ids, would.files, would.size_bytes) == ([one], 1, 3)
    assert len(repository.list_ids()) == 2
    assert repository.delete("x", [one], dry_run=False) == would
    with pytest.raises(BackupUnusable, match="BACKUP_MISSING"):
        repository.delete("x", [one], dry_run=False)


def test_nothing_is_deleted_while_a_manifest_can_not_be_read(tmp_path: Path) -> None:
    repository, objects = opened(tmp_path / "repository")
    one, two = (make(repository, tmp_path, number, {"1.sst": bytes([number])}) for number in (1, 2))
    (tmp_path / "repository" / BACKUPS / f"{two}.json").write_text("{", encoding="utf-8")
    with pytest.raises(BackupUnusable, match="BACKUP_DAMAGED"):
        repository.delete("x", [one], dry_run=False)
    assert len(list(objects.list(FILES))) == 2
    repository.delete("x", [two], dry_run=False)
    assert fetched(repository, one, tmp_path / "one") == {"1.sst": b"\x01"}


def remove(path: Path) -> None:
    path.unlink()


def change(path: Path) -> None:
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "found"),
    [(remove, "is missing"), (change, "holds other bytes"), (cut, "has 2 bytes of 3")],
)
def test_damage_of_a_file_is_found(tmp_path: Path, damage: Callable[[Path], None], found: str) -> None:
    repository, objects = opened(tmp_path / "repository")
    backup_id = make(repository, tmp_path, 1, {"1.sst": b"one", "2.sst": b"two"})
    damage(tmp_path / "repository" / next(iter(objects.list(FILES))).name)
    with pytest.raises(BackupUnusable, match=found):
        fetched(repository, backup_id, tmp_path / "fetched")
    again = make(repository, tmp_path, 2, {"1.sst": b"one", "2.sst": b"two"}, full=True)
    assert fetched(repository, again, tmp_path / "again")["1.sst"] == b"one", "a full backup mends it"


def test_a_manifest_can_not_write_outside_of_the_target(tmp_path: Path) -> None:
    repository, _ = opened(tmp_path / "repository")
    backup_id = make(repository, tmp_path, 1, {"1.sst": b"one"})
    path = tmp_path / "repository" / BACKUPS / f"{backup_id}.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    for name, digest in (("../x", raw["files"][0]["digest"]), ("x", "../../x")):
        raw["files"][0].update(name=name, digest=digest)
        path.write_text(json.dumps(raw), encoding="utf-8")
        with pytest.raises(BackupUnusable, match="BACKUP_DAMAGED"):
            repository.read(backup_id)


def test_a_prune_and_a_backup_exclude_each_other(tmp_path: Path) -> None:
    repository, objects = opened(tmp_path / "repository")
    make(repository, tmp_path, 1, {"1.sst": b"one"})
    objects.put(f"{RUNNING}backup-other", b"")
    with pytest.raises(MetaError) as refused:
        repository.delete("x", [], dry_run=False)
    assert refused.value.reason == "BACKUP_RUNNING"
    make(repository, tmp_path, 2, {"1.sst": b"one"})
    objects.delete([f"{RUNNING}backup-other"])
    objects.put(f"{RUNNING}prune-other", b"")
    with pytest.raises(MetaError):
        make(repository, tmp_path, 3, {"1.sst": b"one"})
    assert [one.name for one in objects.list(RUNNING)] == [f"{RUNNING}prune-other"], "a refused one leaves no mark"


class Losing(FolderObjects):
    """Loses what it answers about marks."""

    def put(self, name: str, source: Path | bytes) -> None:
        super().put(name, source)
        if name.startswith(RUNNING) and source == b"prune":
            raise OSError("the answer is lost")

    def delete(self, names: Iterable[str]) -> None:
        names = list(names)
        super().delete(names)
        if names[0].startswith(RUNNING):
            raise OSError("the answer is lost")


def test_a_lost_answer_about_a_mark_leaves_no_mark_and_fails_no_backup(tmp_path: Path) -> None:
    repository, _ = opened(tmp_path / "repository")
    losing = Repository(Losing(tmp_path / "repository"), repository.name)
    one = make(losing, tmp_path, 1, {"1.sst": b"one"})
    with pytest.raises(OSError, match="lost"):
        losing.delete("x", [one], dry_run=False)
    repository.delete("y", [], dry_run=False)
    assert fetched(repository, one, tmp_path / "one") == {"1.sst": b"one"}


def test_uploads_that_race_share_files(tmp_path: Path) -> None:
    repository, _ = opened(tmp_path / "repository")
    ids: list[str] = []
    content = {f"{number}.sst": bytes([number]) for number in range(50)}
    threads = [
        threading.Thread(target=lambda number=number: ids.append(make(repository, tmp_path, number, content)))
        for number in range(1, 4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert repository.list_ids() == sorted(ids)
    for backup_id in ids:
        assert fetched(repository, backup_id, tmp_path / f"f-{backup_id}") == content


def test_ids_are_in_the_order_of_time() -> None:
    begins = [0, 1, 999_999, 1_000_000, 1_800_000_000_000_000, 1_800_000_000_000_009, 1_800_000_000_000_010]
    ids = [backup_id_at(begin_us, f"facts {begin_us}") for begin_us in begins]
    assert ids == sorted(ids)


def stored(*begins: int) -> list[Stored]:
    return [Stored(str(begin), Manifest("", "1", 1, "1-a", begin, begin, [])) for begin in begins]


@pytest.mark.parametrize(
    ("begins", "at", "expected"),
    [
        ((10, 20, 30), 5, "10"),
        ((30, 10, 20), 10, "10"),
        ((10, 20, 30), 11, "20"),
        ((10, 20, 30), 30, "30"),
        ((10, 20, 30), 31, "30"),
    ],
)
def test_the_backup_of_a_moment(begins: tuple[int, ...], at: int, expected: str) -> None:
    found = first_with_all_of(stored(*begins), at)
    assert found is not None
    assert found.backup_id == expected


def test_there_is_no_backup_of_a_moment_in_an_empty_repository(tmp_path: Path) -> None:
    assert first_with_all_of([], 1) is None
    repository, _ = opened(tmp_path / "repository")
    for at_us in (None, 1):
        with pytest.raises(BackupUnusable, match="BACKUP_MISSING"):
            repository.find(at_us=at_us)
    with pytest.raises(BackupUnusable, match="BACKUP_MISSING"):
        repository.find("../../etc")


@pytest.mark.parametrize(
    "text", ["s3://bucket", "gs://bucket/path", "file://host/path", "file:relative", "s3://b/../x"]
)
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(MetaError) as refused:
        objects_at(text)
    assert refused.value.reason == "BACKUP_REPOSITORY_INVALID"


def test_a_folder_that_is_missing_is_no_empty_repository(tmp_path: Path) -> None:
    repository = Repository(objects_at(f"file://{tmp_path}/missing"), "x")
    with pytest.raises(OSError, match="does not exist"):
        repository.list_ids()
    assert folder_of(f"file://{tmp_path}/a%20b/../c") == tmp_path / "c"


entries = st.dictionaries(st.binary(min_size=1, max_size=2), st.binary(max_size=1))


@given(entries, entries)
def test_the_difference_makes_one_of_the_other(wanted: dict[bytes, bytes], found: dict[bytes, bytes]) -> None:
    result = dict(found)
    ops = list(diff_entries(iter(sorted(wanted.items())), iter(sorted(found.items()))))
    for key, value in ops:
        if value is None:
            del result[key]
        else:
            assert result.get(key) != value
            result[key] = value
    assert result == wanted
    assert len({key for key, _ in ops}) == len(ops)
