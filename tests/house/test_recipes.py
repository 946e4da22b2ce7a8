"""The recipes of CONTRIBUTING ("Add a rule", "Add an RPC", …), each followed by a script in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import list_files, name_of

pytestmark = pytest.mark.long

RULE = '''"""The working day of a table."""


def is_working_day(weekday: int) -> bool:
    """Return whether the day, 0 for Monday, is one of the first five."""
    return weekday < 5
'''
RULE_TEST = """import pytest

from metaservice.core.table.working_days import is_working_day


@pytest.mark.parametrize(("weekday", "expected"), [(0, True), (4, True), (5, False), (6, False)])
def test_the_first_five_days_are_working_days(weekday: int, expected: bool) -> None:
    assert is_working_day(weekday) is expected
"""
RULE_BUG = """    Bug(
        "Saturday is a working day",
        CORE + "table/working_days.py",
        (("weekday < 5", "weekday < 6"),),
        own_tests=("tests/unit/test_working_days.py",),
    ),
"""
COMMAND = '''"""`laketx hello`: greet somebody."""

from __future__ import annotations

import click

from metaservice.cli.command import command
from metaservice.cli.output import Session


@command("hello")
@click.argument("name", help="Who is greeted.")
def run(session: Session, name: str) -> None:
    """Greet somebody.

    laketx hello Ada
    """
    session.show_answer({"greeting": f"hello {name}"}, f"hello {name}")
'''
PROPERTY = """    Property(
        "demo.level",
        "1",
        "A level.",
        low=1,
        high=9,
    ),
"""
RPC_CALL = """
import sys
from metaservice.client.folder_service import open_folder
with open_folder(sys.argv[1]) as client:
    print(client.double(21))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files of the tree, beside a folder for a lake."""
    (tmp_path / "lake").mkdir()
    for path in list_files():
        target = tmp_path / "tree" / name_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path / "tree"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def run(tree: Path, *words: str) -> str:
    done = play(tree, *words)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def play(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_add_a_rule(tree: Path) -> None:
    (tree / "metaservice/core/table/working_days.py").write_text(RULE, encoding="utf-8")
    (tree / "tests/unit/test_working_days.py").write_text(RULE_TEST, encoding="utf-8")
    edit(tree / "tests/plant/bugs/of_decisions.py", "BUGS: Final = (\n", f"BUGS: Final = (\n{RULE_BUG}")
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_working_days.py")
    said = run(tree, "-m", "tests.plant", "Saturday")
    assert "Saturday is a working day" in said
    assert "Saturday is a working day" in (tree / "docs/planted-bugs.md").read_text(encoding="utf-8")


def test_add_an_rpc(tree: Path, tmp_path: Path) -> None:
    proto = tree / "protos/laketx/v1/admin.proto"
    edit(
        proto,
        "service AdminService {\n",
        "service AdminService {\n  // Doubles a number.\n  rpc Double(DoubleRequest) returns (DoubleResponse);\n",
    )
    edit(
        proto,
        "// Request of GetStatus.\n",
        "// Request of Double.\nmessage DoubleRequest {\n  // The number.\n  int64 number = 1;\n}\n\n"
        "// Answer of Double.\nmessage DoubleResponse {\n  // Twice the number.\n  int64 number = 1;\n}\n\n"
        "// Request of GetStatus.\n",
    )
    run(tree, "-m", "tools.gen_protos")
    edit(
        tree / "metaservice/rpc/services/admin.py",
        "    def GetStatus(",
        "    def Double(self, request: pb.DoubleRequest, context: Context) -> pb.DoubleResponse:\n"
        "        return pb.DoubleResponse(number=2 * request.number)\n\n"
        "    def GetStatus(",
    )
    edit(
        tree / "metaservice/rpc/auth/rights.py",
        '    f"{_ADMIN}GetStatus": ',
        '    f"{_ADMIN}Double": Right("nothing", check_nothing),\n    f"{_ADMIN}GetStatus": ',
    )
    edit(
        tree / "metaservice/client/admin.py",
        "    def get_status(",
        "    def double(self, number: int) -> int:\n"
        '        """Return twice the number."""\n'
        "        return self._call(self._admin.Double, admin_pb2.DoubleRequest(number=number)).number\n\n"
        "    def get_status(",
    )
    run(tree, "-m", "mypy", "metaservice/rpc/services/admin.py", "metaservice/client/admin.py")
    assert run(tree, "-c", RPC_CALL, str(tmp_path / "lake")).split()[-1] == "42"
    run(tree, "-m", "tools.gen_api_docs")
    assert "DoubleRequest" in (tree / "docs/api.md").read_text(encoding="utf-8")


def test_add_a_property(tree: Path, tmp_path: Path) -> None:
    edit(tree / "metaservice/core/table/properties.py", "PROPERTIES: Final = (\n", f"PROPERTIES: Final = (\n{PROPERTY}")
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_catalog_documents.py")
    assert "demo.level" in play(tree, *tests).stdout, "the page lacks its row"
    page = tree / "docs/catalog.md"
    rows = page.read_text(encoding="utf-8").splitlines(keepends=True)
    (at,) = [number for number, row in enumerate(rows) if row.startswith("| `data.retain.hours`")]
    rows.insert(at, "| `demo.level` | integer, 1 to 9 | `1` | A level. |\n")
    page.write_text("".join(rows), encoding="utf-8")
    run(tree, *tests)
    laketx = ("-m", "metaservice.cli", "--folder", str(tmp_path / "lake"))
    run(tree, *laketx, "table", "create", "good", "id bigint", "--property", "demo.level=9")
    refused = play(tree, *laketx, "table", "create", "bad", "id bigint", "--property", "demo.level=10")
    assert refused.returncode != 0
    assert "demo.level" in refused.stderr


def test_add_a_command(tree: Path, tmp_path: Path) -> None:
    (tree / "metaservice/cli/hello.py").write_text(COMMAND, encoding="utf-8")
    edit(tree / "metaservice/cli/registry.py", '"serve ping ', '"serve hello ping ')
    laketx = ("-m", "metaservice.cli", "--folder", str(tmp_path / "lake"))
    assert run(tree, *laketx, "hello", "Ada").strip() == "hello Ada"
    assert '"hello Ada"' in run(tree, *laketx, "-o", "json", "hello", "Ada")
    run(tree, "-m", "tools.gen_cli_docs")
    assert "laketx hello" in (tree / "docs/cli.md").read_text(encoding="utf-8")
