"""Commands that other packages add to the `laketx` command."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import click
import pytest

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError
from metaservice.cli.plugins import GROUP, later, load, merge
from tests.house.tree import ROOT


def purge(*names: str) -> click.Group:
    found = group("purge", f"{' '.join(names)}.")
    for name in names:
        command(name, found)(print)
    return found


ADDED = (purge("list", "run"), click.Command("fsck"))


def test_a_group_gets_what_it_lacks_at_its_end() -> None:
    known = purge("list", "release")
    own = known.commands["list"]
    assert merge(known, ADDED[:1]) is known
    assert list(known.commands) == ["list", "release", "run"]
    assert known.commands["list"] is own


def test_a_command_that_is_there_is_not_replaced() -> None:
    known = click.Command("check")
    assert merge(known, [click.Command("check")]) is known
    assert merge(None, ADDED[1:]) is ADDED[1]


def test_an_entry_point_whose_module_is_missing_adds_nothing() -> None:
    gone = EntryPoint("gone", "no_such_module_here:COMMANDS", GROUP)
    here = EntryPoint("here", "tests.unit.test_plugins:ADDED", GROUP)
    assert [each.name for each in load([here, gone])] == ["purge", "fsck"]


def test_an_entry_point_that_cannot_be_imported_is_left_out_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    older = EntryPoint("older", "tests.unit.outdated_commands:COMMANDS", GROUP)
    here = EntryPoint("here", "tests.unit.test_plugins:ADDED", GROUP)
    assert [each.name for each in load([older, here])] == ["purge", "fsck"]
    assert "the commands of older are left out: cannot import name 'gone_since'" in capsys.readouterr().err


def test_what_is_not_installed_is_said_when_the_command_runs() -> None:
    session: Any = None
    with pytest.raises(CommandError) as caught:
        later("no_such_module_here", "run", extra="spark")(session)
    assert caught.value.reason == "NOT_INSTALLED"
    assert "laketx[spark]" in caught.value.next_step


def loaded_by(line: str) -> set[str]:
    code = f"import sys; from metaservice.cli import command_line; command_line.run({line.split()});print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(found.stdout.splitlines()[-1].split())


def test_the_command_loads_neither_spark_nor_arrow() -> None:
    loaded = loaded_by("--help")
    assert "laketx.commands.declarations" in loaded
    assert loaded & {"pyspark", "pyarrow", "pandas", "polars", "numpy"} == set()


def test_a_command_loads_no_other_one() -> None:
    loaded = loaded_by("help ping")
    assert "metaservice.cli.ping" in loaded
    assert loaded & {"metaservice.cli.bench", "metaservice.cli.table", "laketx.commands.declarations"} == set()
