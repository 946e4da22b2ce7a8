"""Commands that other packages add to the `laketx` command."""

import subprocess
import sys
from argparse import Namespace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from metaservice.cli.command import Command
from metaservice.cli.failures import CommandError
from metaservice.cli.plugins import GROUP, later, merge, with_added
from tests.house.tree import ROOT

ADDED = (Command("purge", "", commands=(Command("run", ""),)), Command("fsck", ""))
KNOWN = (Command("purge", "Look.", commands=(Command("list", ""), Command("release", ""))), Command("check", "Check."))


def test_added_commands_come_last_and_groups_are_merged() -> None:
    merged = merge(KNOWN, ADDED)
    assert [command.name for command in merged] == ["purge", "check", "fsck"]
    assert [command.name for command in merged[0].commands] == ["list", "release", "run"]
    assert merged[0].summary == "Look."


def test_a_command_that_is_there_is_not_replaced() -> None:
    assert merge(KNOWN, (Command("check", "Another."),))[1] is KNOWN[1]


def test_an_entry_point_whose_module_is_missing_adds_nothing() -> None:
    gone = EntryPoint("gone", "no_such_module_here:COMMANDS", GROUP)
    here = EntryPoint("here", "tests.unit.test_plugins:ADDED", GROUP)
    assert [command.name for command in with_added(KNOWN, [here, gone])] == ["purge", "check", "fsck"]


def test_what_is_not_installed_is_said_when_the_command_runs() -> None:
    session: Any = None
    with pytest.raises(CommandError) as caught:
        later("no_such_module_here", "run", extra="spark")(session, Namespace())
    assert caught.value.reason == "NOT_INSTALLED"
    assert "laketx[spark]" in caught.value.next_step


def test_the_command_loads_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, worker.commands; from metaservice.cli.registry import build_parser; build_parser();"
        "print({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pyarrow', 'pandas', 'polars', 'numpy'})"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
