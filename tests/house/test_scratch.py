"""Where `make test` keeps its files."""

from pathlib import Path

import pytest

from tests import scratch


@pytest.mark.parametrize(
    ("available", "free", "has_room"),
    [
        (scratch.AVAILABLE_BYTES, 0, True),
        (scratch.AVAILABLE_BYTES - 1024, 0, False),
        (scratch.AVAILABLE_BYTES, 1 << 60, False),
    ],
)
def test_memory_is_used_where_there_is_enough(
    available: int, free: int, has_room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "FREE_BYTES", free)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 1 kB\nMemAvailable: {available >> 10} kB\n", encoding="utf-8")
    assert scratch.has_room(tmp_path, meminfo) is has_room


@pytest.mark.parametrize("meminfo", ["", "MemTotal: 1 kB\n", None])
def test_a_disk_is_used_where_it_cannot_be_found_out(meminfo: str | None, tmp_path: Path) -> None:
    said = tmp_path / "meminfo"
    if meminfo is not None:
        said.write_text(meminfo, encoding="utf-8")
    assert not scratch.has_room(tmp_path, said)


def test_a_folder_that_is_not_there_has_no_room(tmp_path: Path) -> None:
    assert not scratch.has_room(tmp_path / "none")
