"""What the command reads of a line before it asks any service: refusals, and options that belong together."""

import json
from collections.abc import Callable

import click
import pytest

from metaservice.cli import command_line
from metaservice.cli.command import COMMAND_OF, find_context
from metaservice.cli.failures import Exit
from metaservice.cli.output import Session
from metaservice.cli.registry import build_root
from metaservice.cli.table import run_alter
from tests.integration.terminal import Ended

Run = Callable[..., Ended]


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str]) -> Run:
    """There is no service."""

    def run(*words: str) -> Ended:
        capfd.readouterr()
        code = command_line.run(words, {"LAKETX_SERVER": "127.0.0.1:1"})
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tabel list", "there is no command `tabel`\n  next: did you mean `table`?"),
        ("optimize shop.orders", "there is no command `optimize`\n  next: did you mean `laketx compaction run`?"),
        ("vacuum shop.orders", "next: did you mean `laketx purge run`?"),
        ("snapshots shop.orders", "next: did you mean `laketx versions`?"),
        ("table history shop.orders", "next: did you mean `laketx versions`?"),
        ("table describe shop.orders", "next: did you mean `laketx table show`?"),
        ("view describe shop.totals", "next: did you mean `laketx view show`?"),
        ("pins drop x", "pins has no command `drop`\n  next: laketx pins --help"),
        ("table list --namspace x", "table list takes no `--namspace`\n  next: did you mean `--namespace`?"),
        ("table list x", "table list takes no `x`\n  next: laketx table list --help"),
        ("table", "table needs a command\n  next: laketx table --help"),
        ("txn list --state opne", "--state: `opne` is none of open, committed"),
        ("txn list --limit 0", "--limit: `0` is not a whole number from 1 to 100000"),
        ("txn list --limit", "--limit needs a value"),
        ("ping --quiet=yes", "--quiet takes no value"),
        ("ping --timeout soon", "--timeout: `soon` is not a number of seconds from 0.1 to 86400"),
        ("diff shop.orders", "diff needs --from"),
        ("diff --from 1", "diff needs TABLE"),
        ("table drop", "table drop needs TABLE\n"),
        ("namespace create a --property b", "--property: `b` is not NAME=VALUE"),
        ("table alter t --add x", "--add: `x` can't be read; such as: amount decimal"),
        ("versions t --since yesterday", "`yesterday` is not a time\n  next: write it like"),
        ("show t --at now --tag x", "--at or --tag, not both"),
        ("table show t --version 1 --schema-version 1", "--version or --schema-version, not both"),
        ("table create t --or-replace --if-not-exists", "--or-replace or --if-not-exists, not both"),
        ("table --folder x list --server y", "--server or --folder, not both"),
        ("table alter t --comment --yes", "--comment needs a value"),
        ("table alter t --unset a --unset --dry-run", "--unset needs a value"),
    ],
)
def test_a_line_that_can_not_be_right_says_what_to_do(here: Run, line: str, says: str) -> None:
    done = here(*line.split())
    assert (done.code, done.out) == (Exit.USAGE, done.out if line == "table" else "")
    assert says in done.err.replace("laketx: ", "laketx ", 1).replace("laketx laketx", "laketx"), done.err


@pytest.mark.parametrize("place", ["before", "after", "joined"])
def test_a_refusal_is_json_wherever_that_is_asked_for(here: Run, place: str) -> None:
    words = {
        "before": ["-o", "json", "ping", "--nix"],
        "after": ["ping", "--nix", "--output", "json"],
        "joined": ["ping", "--nix", "-ojson"],
    }
    error = json.loads(here(*words[place]).err)["error"]
    assert (error["reason"], error["message"], error["exit_code"]) == ("USAGE", "laketx ping takes no `--nix`", 2)


def test_column_changes_keep_the_order_of_the_line() -> None:
    words = ["t", "--add", "a int", "--drop=b", "--comment", "mine", "--add", "c int", "--rename", "d=e", "--drop", "f"]
    session = Session(lambda: 0, {})
    changes = run_alter.make_context("alter", words, obj=session).params["changes"]
    assert [each.WhichOneof("kind") for each in changes] == ["add", "drop", "add", "rename", "drop"]
    assert [changes[0].add.path, changes[1].drop.path, changes[4].drop.path] == ["a", "b", "f"]


def test_help_goes_before_what_is_wrong(here: Run) -> None:
    done = here("diff", "--from", "x", "--help")
    assert (done.code, done.err) == (Exit.DONE, "")
    assert done.out.startswith("Usage: laketx diff [OPTIONS] TABLE --from N\n")
    assert here("--version").out.startswith("laketx ")


def test_the_help_shows_every_command_under_a_heading_of_its_own(here: Run) -> None:
    text = here("--help").out
    assert "Tables and rows:" in text
    assert "The service:" in text
    assert "More:" not in text


def test_a_help_in_a_pipe_has_no_styles_and_says_the_shared_options_last(here: Run) -> None:
    text = here("table", "create", "--help").out
    assert "\x1b" not in text
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Positional arguments:", "Options:", "Options of every command:"]


def test_words_of_other_tools_mean_commands_that_there_are() -> None:
    group = build_root()
    root = click.Context(group, info_name="laketx")
    for word, meant in COMMAND_OF.items():
        assert find_context(root, meant.split()).command.name == meant.split()[-1]
        assert group.get_command(root, word) is None, f"{word} is a command"
