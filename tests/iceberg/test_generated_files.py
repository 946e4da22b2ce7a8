"""Files that are generated get there, or are tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.iceberg.generated_files import AT_ONCE, GeneratedFiles
from worker.iceberg.metadata.facts import MadeFile


def test_what_failed_is_written_by_the_next_settling(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("a file where a folder is needed")
    files = GeneratedFiles(str(tmp_path))
    for name in ("good/a", "bad/b", "good/c"):
        files.put_once(MadeFile(name, name.encode()))
    with pytest.raises(OSError):
        files.settle()
    (tmp_path / "bad").unlink()
    files.settle()
    for name in ("good/a", "bad/b", "good/c"):
        assert files.read(name) == name.encode()


def test_files_are_written_once_and_before_too_many_wait(tmp_path: Path) -> None:
    files = GeneratedFiles(str(tmp_path))
    for at in range(AT_ONCE):
        files.put_once(MadeFile(f"m/{at}", b"x"))
    assert len([*tmp_path.glob("m/*")]) == AT_ONCE
    (tmp_path / "m/0").unlink()
    files.put_once(MadeFile("m/0", b"x"))
    files.settle()
    assert not (tmp_path / "m/0").exists()
