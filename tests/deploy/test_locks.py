"""The images' lock files: complete, with hashes, at the versions of constraints.txt; licences; audits without data."""

import json
import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.house.dependencies import needed
from tests.house.tree import ROOT
from tools import audit
from tools.gen_licences import BY_NAME, document, licence
from tools.lock import LOCKS, Lock, versions

SERVICE, WORKER, *_ = LOCKS
PERMISSIVE = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "MIT-0", "PSF-2.0", "Zlib"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_versions_are_those_of_the_constraints(lock: Lock) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    locked = versions(lock)
    assert locked
    assert locked == {name: pinned.get(canonicalize_name(name)) for name in locked}, "run `make lock`"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_has_hashes_and_no_address(lock: Lock) -> None:
    text = lock.path.read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(versions(lock))
    assert [block for block in blocks if not re.search(r"--hash=sha256:[0-9a-f]{64}", block)] == []
    assert "://" not in text


@pytest.mark.parametrize(("lock", "extra"), [(SERVICE, "arrow"), (WORKER, "pyspark")], ids=["service", "worker"])
def test_nothing_is_left_out(lock: Lock, extra: str) -> None:
    assert needed("laketx", extra) - {canonicalize_name(name) for name in versions(lock)} == set(), "run `make lock`"


def test_every_licence_is_permissive() -> None:
    found = {name: licence(name) for lock in (SERVICE, WORKER) for name in versions(lock)}
    strict = {name: said for name, said in found.items() if not any(map(_is_permissive, said.split(" OR ")))}
    assert strict == {"certifi": "MPL-2.0"}  # which binds those who change its list of authorities
    assert BY_NAME.keys() <= found.keys(), "a package that is named there is no dependency any more"
    assert all(f"| {name} |" in document() for name in found)


def _is_permissive(expression: str) -> bool:
    return set(expression.split(" AND ")) <= PERMISSIVE


def test_an_audit_reports_what_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bug = {"id": "PYSEC-1", "fix_versions": ["2"]}
    known = [{"name": "a", "version": "1", "vulns": [bug]}, {"name": "b", "version": "1", "vulns": []}]
    plays(monkeypatch, tmp_path, json.dumps({"dependencies": known}))
    assert audit.audit(SERVICE) == ["service: a 1 has PYSEC-1, mended in 2"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('{"dependencies": [{"name": "a", "skip_reason": "not found"}]}', "knows nothing of 1 of 1 packages"),
        ("ConnectionError: no route", "ConnectionError: no route"),
    ],
)
def test_an_audit_without_data_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, reason: str
) -> None:
    plays(monkeypatch, tmp_path, said)
    assert audit.main([]) == 0
    assert reason in capsys.readouterr().out
    assert audit.main(["--require"]) == 1


def plays(monkeypatch: pytest.MonkeyPatch, folder: Path, said: str) -> None:
    """A program in the place of pip-audit, whose data can't be had in a test."""
    program = folder / "pip-audit"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(audit, "python_tool", lambda name: folder / name)
