"""What `laketx view create`, `refresh`, `explain`, `verify` and `status` do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from laketx.lake import Lake
from laketx.materialized_view import ViewStatus
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.output import Column, Row, Session
from worker.base.lazy_modules import LazyModule
from worker.services.commands import command_errors, lake_of, warehouse_of
from worker.spark.java import keep_spark_quiet

if TYPE_CHECKING:
    from worker.views import creation, lineage, refresh
    from worker.views.proof import Proof
else:
    creation = LazyModule("worker.views.creation")
    lineage = LazyModule("worker.views.lineage")
    refresh = LazyModule("worker.views.refresh")

COLUMNS: Final = (
    Column("name"),
    Column("refreshed (UTC)"),
    Column("version"),
    Column("kind", rank=1),
    Column("behind"),
    Column("lag"),
    Column("schedule"),
    Column("seconds", rank=3),
    Column("expected", rank=4),
    Column("reason", rank=2, folds=True),
    Column("failure", rank=1, folds=True),
)
LINEAGE_COLUMNS: Final = (
    Column("direction"),
    Column("steps"),
    Column("view"),
    Column("source"),
    Column("columns", rank=1, folds=True),
)


@contextmanager
def opened(session: Session, warehouse: str | None) -> Iterator[Lake]:
    """The lake; refusals are those of a command."""
    place = warehouse_of(session, warehouse)
    keep_spark_quiet()  # statements of periodic tasks start it
    with (
        command_errors(),
        Lake(session.connect(), place, None, uri=lake_of(session), user=session.settings.user) as lake,
    ):
        yield lake


def run_create(
    session: Session,
    name: str,
    query: str,
    strict: bool,
    partition_by: str,
    no_data: bool,
    schedule: str,
    target_lag: str,
    comment: str,
    dry_run: bool,
    warehouse: str | None,
) -> None:
    with opened(session, warehouse) as lake:
        new = creation.planned_view(lake, query, strict=strict)
        if dry_run:
            lines = [f"{step.work.words}: {step.operator}: {step.reason}" for step in new.operators]
            if session.as_json:
                session.show_json({"view": name, "operators": lines})
            for line in [] if session.as_json else [f"would create {name}", *lines]:
                session.say(line)
            return
        view = lake.create_materialized_view(
            name,
            query,
            strict=strict,
            partition_by=[column.strip() for column in partition_by.split(",") if column.strip()],
            comment=comment,
            with_data=not no_data,
            schedule=schedule,
            target_lag=target_lag,
        )
        version = view.table.meta.head_version
        session.done(f"created {view.name}, version {version}", {"view": view.name, "version": version})


def run_refresh(session: Session, name: str, full: bool, incremental: bool, warehouse: str | None) -> None:
    with opened(session, warehouse) as lake:
        done = lake.materialized_view(name).refresh(full=full, incremental=incremental)
    at = ", ".join(f"{source} {version}" for source, version in done.vector.items())
    if done.kind == refresh.NOTHING:
        text = f"nothing to do: {name} is at {at}"
    else:
        why = f" ({done.reason})" if done.reason else ""
        rows = f"{done.rows_added} rows added, {done.rows_removed} removed"
        text = f"{done.kind} refresh{why}: version {done.version}, {rows}; sources: {at}"
    session.done(text, asdict(done))


def run_explain(session: Session, name: str, warehouse: str | None) -> None:
    with opened(session, warehouse) as lake:
        text = lake.materialized_view(name).explain()
    if session.as_json:
        session.show_json({"view": name, "explanation": text})
    for line in [] if session.as_json else text.splitlines():
        session.say(line)


def run_verify(session: Session, name: str, version: int | None, warehouse: str | None) -> None:
    with opened(session, warehouse) as lake:
        proof = lake.materialized_view(name).verify(version)
    at = ", ".join(f"{source} {number}" for source, number in proof.vector.items())
    if proof.holds:
        text = f"{name} version {proof.version} has the {proof.rows} rows of its query at {at}; digest {proof.digest}"
        session.show_answer(_answer(proof), text)
        return
    if session.as_json:
        session.show_json(_answer(proof))
    for word, rows in (("missing", proof.missing), ("surplus", proof.surplus)):
        for row in [] if session.as_json else rows:
            session.say(f"{word}: {_row(row)}")
    raise CommandError(
        Exit.CORRUPT,
        "VIEW_DIFFERS",
        f"{name} version {proof.version} does not have the rows of its query at {at}",
        next_step=f"laketx view refresh {name} --full",
    )


def run_status(session: Session, name: str | None, warehouse: str | None) -> None:
    with opened(session, warehouse) as lake:
        names: Sequence[str] = lake.materialized_views() if name is None else [name]
        statuses = [lake.materialized_view(each).status() for each in names]
    if session.as_json:
        session.show_json([_plain(asdict(status)) for status in statuses])
    else:
        session.show_rows(COLUMNS, map(_status_row, statuses))


def run_lineage(session: Session, name: str | None) -> None:
    reads = lineage.view_reads(session.client.list_tables())
    if name is not None:
        reads = lineage.lineage_of(reads, session.client.get_table(name).name)
    if session.as_json:
        session.show_json([asdict(read) for read in reads])
        return
    columns = LINEAGE_COLUMNS if name is not None else LINEAGE_COLUMNS[2:]
    rows = [(read.direction, read.steps, read.view, read.source, ", ".join(read.columns)) for read in reads]
    session.show_rows(columns, [row[-len(columns) :] for row in rows])


def _status_row(status: ViewStatus) -> Row:
    refreshed = "" if status.refreshed is None else f"{status.refreshed:%Y-%m-%d %H:%M:%S}"
    behind = ", ".join(f"{source} {commits}" for source, commits in status.behind.items() if commits) or "0"
    schedule = f"{status.schedule} (suspended)" if status.is_suspended else status.schedule
    lag = f"{status.lag_s:.0f} s"
    done = (status.name, refreshed, status.version, status.kind, behind, lag, schedule)
    return *done, status.seconds, status.expected, status.reason, status.failure


def _answer(proof: Proof) -> dict[str, Any]:
    rows = {word: [_plain(row) for row in getattr(proof, word)] for word in ("missing", "surplus")}
    return {**asdict(proof), **rows}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them."""
    return {
        name: value if isinstance(value, str | int | float | bool | dict | None) else str(value)
        for name, value in row.items()
    }


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())
