"""`laketx files`: what is live at a version, or what a scan with a condition would read of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Unpack

import click

from metaservice.cli.command import command
from metaservice.cli.failures import did_you_mean, usage_failure
from metaservice.cli.find import find_table, read_condition
from metaservice.cli.kinds import PAIR, whole
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import AsOf, table_argument, version_options
from metaservice.cli.values import date_text, partition_text, timestamp_text, types_of, word
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2

COLUMNS = (
    Column("kind", rank=2),
    Column("partition", folds=True),
    Column("bucket", rank=3, right=True),
    Column("rows", right=True),
    Column("bytes", rank=1, right=True),
    Column("added", rank=4, right=True),
    Column("path", folds=True),
)
CONJUNCT_COLUMNS = (Column("left out", right=True), Column("by"), Column("condition", folds=True))
IN_QUOTES = ("string", "date", "timestamp", "timestamp_ntz")


@command("files")
@table_argument
@version_options
@click.option("--where", metavar="COND", help="Only files that may hold matching rows, as a scan would read them.")
@click.option(
    "--partition",
    multiple=True,
    type=PAIR,
    metavar="COLUMN=VALUE",
    help="Only this partition; give it once for each column. NULL is a value; a timestamp needs its zone.",
)
@click.option("--explain", is_flag=True, help="Also show how many files were left out, and why.")
@click.option("--limit", type=whole(0, 1 << 40), help="Show at most this many; default: all.")
def run(
    session: Session,
    table: str,
    where: str | None,
    partition: tuple[tuple[str, str], ...],
    explain: bool,
    limit: int | None,
    **as_of: Unpack[AsOf],
) -> None:
    """List the files that are live at a version, or those that a scan would read.

    laketx files shop.orders --version 41
    laketx files shop.orders --where "day >= '2026-11-01' AND (shop IN (3, 4) OR note LIKE 'late%')" --explain
    Conditions: = <> < <= > >=, IN, BETWEEN, LIKE 'x%', STARTS WITH 'x', IS NULL, AND, OR, NOT and brackets; write text,
    dates and times in 'quotes', a timestamp with its zone: '2026-11-01 10:00Z'. A scan still applies the condition to
    the rows.

    With `-o json` it prints one document a line. `added` is the version that made the file live.
    """
    table_id = find_table(session.client, table).table_id
    version = session.client.resolve_version(table_id, **as_of).version
    meta = session.client.get_table(table_id=table_id, version=version)  # conditions name the columns as they were
    predicate = scan_condition(meta, where, partition)
    if predicate is None and not explain:
        show(session, meta, session.client.list_files(meta.table_id, version=version), limit)
        return
    parts = session.client.plan_scan(
        meta.table_id, version=version, predicate=predicate, without_stats=not session.as_json, explain=explain
    )
    explanation = read_pb2.PlanExplanation()
    entries = entries_of(parts, explanation)
    show(session, meta, entries, limit)
    if explain:
        for _ in entries:  # the explanation comes last
            pass
        show_explanation(session, meta, explanation)


def scan_condition(
    table: catalog_pb2.Table, where: str | None, partition: Iterable[tuple[str, str]]
) -> common_pb2.Predicate | None:
    """Combine the condition and the partition values; None selects all files."""
    conditions = [read_condition(table, where)] if where is not None else []
    conditions += [equals(table, column, value) for column, value in partition]
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=conditions))


def equals(table: catalog_pb2.Table, column: str, value: str) -> common_pb2.Predicate:
    if column not in table.partition_columns:
        columns = list(table.partition_columns)
        raise usage_failure(
            f"{table.name} is not partitioned by `{column}`",
            next_step=did_you_mean(column, columns) or f"its partition columns: {', '.join(columns) or 'none'}",
        )
    if value == "NULL":
        return read_condition(table, f"`{column}` IS NULL", option="--partition")
    text = "'" + value.replace("'", "''") + "'" if types_of(table)[column] in IN_QUOTES else value
    return read_condition(table, f"`{column}` = {text}", option="--partition")


def entries_of(
    parts: Iterable[read_pb2.PlanScanResponse], explanation: read_pb2.PlanExplanation
) -> Iterator[common_pb2.LiveEntry]:
    """The entries; what the last part explains is put into `explanation`."""
    for part in parts:
        yield from part.entries
        if part.HasField("explanation"):
            explanation.CopyFrom(part.explanation)


def show(
    session: Session, table: catalog_pb2.Table, entries: Iterable[common_pb2.LiveEntry], limit: int | None
) -> None:
    listed = islice(entries, limit)
    if session.as_json:
        session.show_json_lines(listed)
    elif limit != 0:
        session.show_rows(COLUMNS, (cells(entry, types_of(table)) for entry in listed))


def show_explanation(session: Session, table: catalog_pb2.Table, explanation: read_pb2.PlanExplanation) -> None:
    if session.as_json:
        session.show_json_lines([{"explanation": explanation}])
        return
    session.say("")
    session.show_pairs(
        [
            ("partitions", f"{explanation.partitions}, {explanation.partitions_pruned} left out"),
            ("files", f"{explanation.files}, {explanation.files_kept} to read"),
            ("by partition", f"{explanation.files_pruned_by_partition} left out"),
            ("by statistics", f"{explanation.files_pruned_by_statistics} left out"),
            ("delete sets", f"{explanation.delete_sets}, {explanation.delete_sets_kept} to read"),
        ]
    )
    types = types_of(table)
    rows = [
        (each.files_pruned, "partition" if each.by_partition else "statistics", typed_condition(each.conjunct, types))
        for each in explanation.conjuncts
    ]
    if rows:
        session.say("")
        session.show_rows(CONJUNCT_COLUMNS, rows)


def typed_condition(text: str, types: Mapping[str, str]) -> str:
    """Write days and microseconds as dates and times; text in quotes stays as it is."""

    def typed(match: re.Match[str]) -> str:
        kind = types.get(match["column"] or "", "")
        if kind not in ("date", "timestamp", "timestamp_ntz"):
            return match[0]

        def read(number: int) -> str:
            return date_text(number) if kind == "date" else timestamp_text(number, kind)

        values = re.sub(r"-?\d+", lambda number: f"'{read(int(number[0]))}'", match["values"])
        return f"{match['column']} {match['operator']} {values}"

    pattern = r"'(?:[^']|'')*'|\b(?P<column>\w+) (?P<operator>=|<>|<=?|>=?|IN) (?P<values>-?\d+|\([-\dNUL, …]+\))"
    return re.sub(pattern, typed, text)


def partition_of(entry: common_pb2.LiveEntry) -> common_pb2.Partition:
    return entry.file.partition if entry.HasField("file") else entry.delete_set.partition


def cells(entry: common_pb2.LiveEntry, types: Mapping[str, str]) -> Row:
    """Return the cells of an entry in the order of COLUMNS."""
    file, hidden = entry.file, entry.delete_set
    is_file = entry.HasField("file")
    return (
        kind_of(entry),
        partition_text(partition_of(entry), types),
        file.bucket if is_file else "",
        file.rows if is_file else hidden.rows,
        file.bytes if is_file else hidden.bytes,
        entry.added_version,
        file.path if is_file else hidden.path,
    )


def kind_of(entry: common_pb2.LiveEntry) -> str:
    if not entry.HasField("file"):
        return "delete set"
    return word(common_pb2.FileKind.Name, entry.file.kind) if entry.file.kind else "data"
