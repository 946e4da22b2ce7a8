"""The parts of the command that need no service: what fits, what is near, how values read."""

import json
import logging
import re
import shlex
from datetime import UTC, date, datetime
from itertools import takewhile

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.cli import bench, versions
from metaservice.cli.columns import read_columns
from metaservice.cli.command import Group, find_context, is_example, paragraphs
from metaservice.cli.failures import NEXT_OF_REASON, CommandError, nearest
from metaservice.cli.files import typed_condition
from metaservice.cli.kinds import StoredName
from metaservice.cli.output import FOLDED_AT_LEAST, GAP, SHORTEST, Column, Session, cutter, fit, whole_id
from metaservice.cli.registry import build_root
from metaservice.cli.values import as_json, duration_text, partition_text, read_time_us, typed_partition_text
from metaservice.client import PROFILE_NAMES
from metaservice.core.table.meta import Profile
from metaservice.core.table.partitions import Partitioning
from metaservice.shared.terminal import LineFormatter, json_text, printable
from protos.laketx.v1 import common_pb2, read_pb2
from tools.gen_cli_docs import root_context, walk
from tools.wire import ROOT

NOW_US = 1_795_277_145_690_975
EPOCH = date(1970, 1, 1)
columns = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60), st.booleans()), min_size=1, max_size=8)


@given(columns, st.integers(20, 200))
def test_columns_fit_or_are_the_last_that_may_go(asked: list[tuple[int, int, bool]], width: int) -> None:
    wanted = [Column(str(number), rank=rank, folds=folds) for number, (rank, _, folds) in enumerate(asked)]
    widths = [each for _, each, _ in asked]
    kept = fit(wanted, widths, width)
    least = [min(widths[i], FOLDED_AT_LEAST) if wanted[i].folds else widths[i] for i in kept]
    assert sum(least) + GAP * (len(kept) - 1) <= width or all(wanted[i].rank == 0 for i in kept)
    assert kept == sorted(kept)
    assert {i for i, column in enumerate(wanted) if column.rank == 0} <= set(kept)
    lost = [wanted[i].rank for i in range(len(wanted)) if i not in kept]
    assert not lost or min(lost) >= max((wanted[i].rank for i in kept if wanted[i].rank), default=0)


def test_versions_keep_their_time_at_80_columns() -> None:
    widths = [7, 26, 9, 3, 6, 6, 6, 5, 7, 36, 16, 20]  # of a table's first commits
    shown = [versions.COLUMNS[number].name for number in fit(versions.COLUMNS, widths, 80)]
    assert shown == ["version", "time version (UTC)", "operation", "who", "+files", "+rows", "-rows"]


@given(st.lists(st.uuids().map(str), min_size=1, max_size=20, unique=True))
def test_short_ids_name_one_each(ids: list[str]) -> None:
    newest_first = sorted(ids, reverse=True)
    short = list(map(cutter(ids), ids))
    assert [whole_id(one, newest_first, "transaction") for one in short] == ids
    assert min(map(len, short)) >= SHORTEST
    assert cutter([*ids, "tag a"])("tag a") == "tag a"


def test_a_beginning_of_several_ids_is_refused() -> None:
    ids = ["01a20627-6675-7eb9-987a-96c766e64b12", "01a20627-6675-7eb8-987a-96c766e64b12"]
    with pytest.raises(CommandError, match="more than one transaction"):
        whole_id("01a20627-6675-7", ids, "transaction")
    assert whole_id("01a20627-7", ids, "transaction") == "01a20627-7"  # the service says that there is none


@given(st.dates(), st.datetimes(timezones=st.just(UTC)), st.text())
def test_a_conflict_reads_as_its_partition_does(day: date, moment: datetime, text: str) -> None:
    days, micros = (day - EPOCH).days, read_time_us(moment.isoformat(), 0)
    kinds = (("d", "date"), ("t", "timestamp"), ("s", "string"))
    on_the_wire = Partitioning(kinds).encode({"d": days, "t": micros, "s": text})
    values = [
        common_pb2.PartitionValue(column="d", value=common_pb2.Value(date=days)),
        common_pb2.PartitionValue(column="t", value=common_pb2.Value(timestamp_us=micros)),
        common_pb2.PartitionValue(column="s", value=common_pb2.Value(text=text)),
    ]
    shown = typed_partition_text(on_the_wire, dict(kinds))
    assert shown == partition_text(common_pb2.Partition(values=values), dict(kinds))
    assert shown.startswith(f"d={day.isoformat()}/t={moment:%Y}" if moment.year > 999 else "d=")


@given(st.text())
def test_what_others_wrote_steers_no_terminal(text: str) -> None:
    assert printable(text).isprintable()


@given(
    st.text(),
    st.sampled_from(["\x1b[2J", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\U000e0041"]),
)
def test_json_and_logs_steer_no_terminal_and_lose_nothing(text: str, steering: str) -> None:
    document = {text + steering: [steering + text, 1, None]}
    shown = json_text(document, indent=2)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert json.loads(shown) == document
    record = logging.LogRecord("laketx", logging.INFO, "", 0, "said %s", (text + steering,), None)
    assert all(line.isprintable() for line in LineFormatter().format(record).split("\n"))


def test_letters_of_every_language_stay_readable_in_json() -> None:
    assert json_text({"a": "Grüße, 世界"}) == '{"a": "Grüße, 世界"}'


def test_the_command_knows_every_profile() -> None:
    assert list(PROFILE_NAMES) == [str(one) for one in Profile]


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("now", NOW_US),
        ("10m ago", NOW_US - 600_000_000),
        ("2d", NOW_US - 2 * 86_400_000_000),
        ("1970-01-01", 0),
        ("1970-01-01 00:00:01.5", 1_500_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01Z", 1_000_000),
    ],
)
def test_a_time_is_read(text: str, time_us: int) -> None:
    assert read_time_us(text, NOW_US) == time_us


@pytest.mark.parametrize("text", ["", "yesterday", "10 parsecs ago", "1795277145", "-5m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not a time"):
        read_time_us(text, NOW_US)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("ordrs", "shop.orders"),
        ("orders", "shop.orders"),
        ("SHOP.ORDERS", "shop.orders"),
        ("shpo.orders", "shop.orders"),
        ("event", "events"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_the_nearest_name(word: str, found: str) -> None:
    assert nearest(word, ["shop.orders", "events", "a"]) == found


def test_columns_are_read_as_in_sql() -> None:
    found = read_columns("id BIGINT, price decimal(10, 2) NOT NULL, s struct<A: INT, b: int>, note string", ["id"])
    assert [(each.name, each.type, each.nullable) for each in found] == [
        ("id", "bigint", False),
        ("price", "decimal(10,2)", False),
        ("s", "struct<A:int,b:int>", True),
        ("note", "string", True),
    ]


def test_json_has_numbers_words_and_no_absent_fields() -> None:
    version = read_pb2.Version(version=2**53 + 1, operation=common_pb2.OPERATION_MAJOR_COMPACT, properties={"a": "b"})
    found = as_json(version)
    assert (found["version"], found["operation"], found["properties"]) == (2**53 + 1, "major_compact", {"a": "b"})
    assert found["rows_added"] == 0
    assert "time_version_us" not in found
    version.operation = 99  # type: ignore[assignment]
    assert as_json(version)["operation"] == 99


@given(st.lists(st.floats(0, 1e7), max_size=50))
def test_a_histogram_counts_every_call_once(took_ms: list[float]) -> None:
    found = bench.histogram(took_ms)
    assert sum(each["calls"] for each in found) == len(took_ms)
    edges = [each["up_to_ms"] for each in found]
    assert edges == sorted(edges)
    assert not took_ms or max(took_ms) <= edges[-1] * 1.001


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_percentile_has_its_share_at_or_below(took_ms: list[float], share: float) -> None:
    ordered = sorted(took_ms)
    found = bench.percentile(ordered, share)
    assert sum(each <= found for each in ordered) >= share * len(ordered) - 1e-9
    assert bench.percentile(ordered, 1.0) == ordered[-1]


def test_every_command_has_help_with_its_options() -> None:
    for context in walk(root_context()):
        text = context.get_help()
        options = [each for each in context.command.params if isinstance(each, click.Option)]
        assert all(name in text for each in options for name in each.opts)


def test_every_command_has_an_example_that_parses() -> None:
    for context in walk(root_context()):
        if isinstance(context.command, Group):
            continue
        examples = [each for each in paragraphs(context.command.help) if is_example(each)]
        assert examples, f"`{context.command_path} --help` shows no example"
        for each in examples:
            assert parsed(each).command_path == context.command_path, each


def parsed(line: str) -> click.Context:
    """The command that a line runs, with its options read."""
    _, *words = shlex.split(line)
    rest = list(takewhile(lambda word: word not in (">", "<", "|", "…"), words))
    found = build_root().make_context("laketx", rest, obj=Session(lambda: 0, {}))
    while isinstance(found.command, Group):
        rest = [*found._protected_args, *found.args]
        name, command, rest = found.command.resolve_command(found, rest)
        assert command is not None
        found = command.make_context(name, rest, parent=found)
    return found


def test_a_help_keeps_examples_and_joins_what_belongs_together() -> None:
    text = """Do it.

    laketx do --this
    laketx do --that
    It is done
    at once.

    Later it is not.
    """
    examples = ["laketx do --this", "laketx do --that"]
    assert paragraphs(text) == ["Do it.", *examples, "It is done at once.", "Later it is not."]


def test_every_hint_is_for_a_reason_that_there_is() -> None:
    documented = set(re.findall(r"^\| `([A-Z_]+)", (ROOT / "docs/errors.md").read_text(encoding="utf-8"), re.MULTILINE))
    ours = {"RPC_DEADLINE_EXCEEDED", "RPC_UNIMPLEMENTED"}  # documented together, as RPC_…
    assert NEXT_OF_REASON.keys() - ours <= documented


def test_commands_that_hints_name_are_there() -> None:
    root = root_context()
    for hint in NEXT_OF_REASON.values():
        for line in re.findall(r"`laketx ([a-z ]+?)(?: [A-Z].*| -.*)?`", hint):
            assert find_context(root, line.split()).command.name == line.split()[-1]


def test_names_and_paths_are_completed() -> None:
    for context in walk(root_context()):
        for each in context.command.params:
            word = each.make_metavar(context).strip("[].").partition("[")[0]
            is_new = context.command_path in ("laketx backup", "laketx tag create", "laketx cursor create")
            if word in ("TABLE", "TXN", "PIN", "TASK", "TAG", "CURSOR", "PATH", "FILE") and not (
                is_new and each.name != "table"
            ):
                assert isinstance(each.type, StoredName | click.Path), f"{context.command_path} {each.name}"


def test_days_and_times_of_a_condition_are_shown_as_such() -> None:
    types = {"day": "date", "at": "timestamp", "id": "bigint"}
    text = "(day IN (20778, NULL) AND at >= 1000000 AND id = 20778 AND note = 'day = 5')"
    assert typed_condition(text, types) == (
        "(day IN ('2026-11-21', NULL) AND at >= '1970-01-01 00:00:01Z' AND id = 20778 AND note = 'day = 5')"
    )


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 s"), (250, "0.25 s"), (45_000, "45 s"), (300_000, "5 min"), (9_000_000, "2.5 h"), (10**9, "12 d")],
)
def test_a_duration_is_for_people(ms: int, text: str) -> None:
    assert duration_text(ms) == text
