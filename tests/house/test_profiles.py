"""Clients don't know profiles: what a profile asks of them is in the table's message (`Table.rules`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaservice.core.table.meta import Profile
from tests.house.tree import ROOT, list_files, name_of

CLIENTS = ("worker/", "laketx/")
LITERAL = re.compile(rf"""["'](?:{"|".join(Profile)}|delta_)["']""")
COMPARED = re.compile(
    r"""\.profile\s*(?:==|!=|in\b|not\s+in\b)|\.profile\.\w+\(|"""
    r"""getProfile\(\)\s*(?:\.(?:equals|startsWith|endsWith|contains|matches)|==|!=)|switch\s*\([^)]*getProfile"""
)
NAMED = {"laketx/dlt/client.py": 1, "worker/imports/table_import.py": 1}  # the profile of tables that they make


@pytest.mark.parametrize(
    ("line", "decides"),
    [
        ('if meta.profile != "maxcompute":', True),
        ("if meta.profile.startswith(READS_COUNT):", True),
        ("meta().getProfile().equals(ROW_LEVEL)", True),
        ("found.profile, found.buckets = meta.profile, meta.buckets", False),
        ("found.put(NewTables.PROFILE, snapshot.meta().getProfile());", False),
    ],
)
def test_what_counts_as_deciding_by_a_profile(line: str, decides: bool) -> None:
    assert (COMPARED.search(line) is not None) is decides


def test_no_client_decides_by_the_name_of_a_profile() -> None:
    assert [f"{name_of(path)}: {found[0]}" for path, text in clients() for found in COMPARED.finditer(text)] == []


def test_no_client_names_a_profile() -> None:
    found = {name_of(path): len(LITERAL.findall(text)) for path, text in clients() if LITERAL.search(text)}
    assert found == NAMED


def clients() -> Iterator[tuple[Path, str]]:
    for path in list_files(".py", ".java"):
        if name_of(path).startswith(CLIENTS) and "/src/test/" not in name_of(path):
            yield path, path.read_text(encoding="utf-8")


def test_the_tree_has_clients() -> None:
    assert {path.suffix for path, _ in clients()} == {".py", ".java"}
    assert (ROOT / "worker/connection/table_view.py").exists()
