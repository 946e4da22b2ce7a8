"""README.md stays short; docs/wire.md and docs/terminal.md are what happens; the map of the tree is whole."""

import re
import subprocess
import sys
from pathlib import Path

from protos.laketx.v1 import catalog_pb2
from tests.house.tree import ROOT, list_files, name_of
from tests.integration.service import TIMEOUT_S, service
from tools import gen_session

README = (ROOT / "README.md").read_text(encoding="utf-8")
WIRE = (ROOT / "docs/wire.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:7070"
LINES_MAX = 10
README_LINES_MAX = 150


def example() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```", WIRE, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < README_LINES_MAX


def test_the_example_has_ten_lines() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= LINES_MAX


def test_the_example_does_what_it_says(tmp_path: Path) -> None:
    code = example()
    assert code.count(ADDRESS) == 1
    said = re.findall(r"print\(.*\)  # (\d+):", code)
    with service(tmp_path / "db") as (server, stubs):
        command = [sys.executable, "-c", code.replace(ADDRESS, server.address)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == said
        (table,) = stubs.catalog.ListTables(catalog_pb2.ListTablesRequest(), timeout=TIMEOUT_S).tables
        assert [entry.file.rows for entry in stubs.list_files(table.table_id)] == [100]


def test_the_session_is_what_happens() -> None:
    assert gen_session.masked(gen_session.play()) == gen_session.masked(gen_session.shown()), "run `make docs`"


def test_the_map_names_every_folder() -> None:
    folders = {name_of(path).split("/")[0] for path in list_files() if "/" in name_of(path)}
    mapped = set(re.findall(r"^(\w+)/", CONTRIBUTING.split("## The tree")[1].split("## ")[0], re.MULTILINE))
    assert mapped == {folder for folder in folders if not folder.startswith(".")}


def test_the_map_names_every_suite() -> None:
    folders = {name_of(path).split("/")[1] for path in list_files(".py") if name_of(path).startswith("tests/")}
    named = re.search(r"^tests/ +(.*)$", CONTRIBUTING, re.MULTILINE)
    assert named is not None
    assert set(named[1].split(", ")) == {folder for folder in folders if "." not in folder} - {"fixtures"}
