"""`laketx purge run` and `laketx fsck`: the jobs that need storage and no Spark, as commands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Final

from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.cli.find import TABLE_ID, find_table, table_name
from metaservice.cli.output import Session, existing
from metaservice.client import MetaClient
from metaservice.client.credentials import with_scheme
from worker.base.errors import InputError
from worker.files.warehouse import adopt, check_mark, check_warehouse, describe, read_mark
from worker.services.fsck import Fsck
from worker.services.purge import Purge, Report

HOLDERS_SHOWN: Final = 20
REPORT_EACH_S: Final = 5.0


def run_purge(session: Session, table: str | None, warehouse: str | None, yes: bool, dry_run: bool) -> Exit:
    place = warehouse_of(session, warehouse)
    table_id = ""
    if table is not None:
        table_id = table if TABLE_ID.fullmatch(table) else _with_folder(session, table)
    with command_errors():  # before anybody is asked
        check_warehouse(session.client, place)
    if not dry_run:
        what = f"of {table}" if table_id else "of all tables"
        session.confirm(f"Delete the files {what} in {place} that nothing needs any more?", yes=yes)

    def say(what: str, path: str) -> None:
        if dry_run and not session.as_json:
            session.say(f"{what} {path}")

    with command_errors():
        report = Purge(session.client, place, dry_run=dry_run, say=say).run(table_id)
    if session.as_json:
        session.show_json({**counts(report), "failures": report.failures, "dry_run": dry_run})
    for failure in report.failures:
        session.note(failure)
    if not (session.as_json or session.settings.quiet):
        say_held(session, table_id)
    session.done(summary(report, would="would be " if dry_run else ""))
    return Exit.REFUSED if report.failed else Exit.DONE


def _with_folder(session: Session, name: str) -> str:
    """The table's id; says where its files are if its folder is another table's."""
    table = find_table(session.client, name)
    if table.folder_id not in ("", table.table_id):
        owner = table_name(session.client, table.folder_id)
        session.note(f"the files of {table.name} are in the folder of {owner}: purge that table to delete them")
    return table.table_id


def say_held(session: Session, table_id: str) -> None:
    waiting = held_versions(session.client, table_id)
    for sentence in islice(waiting, HOLDERS_SHOWN):
        session.note(sentence)
    if next(waiting, None) is not None:
        session.note("`laketx pins list` shows who keeps more")


def counts(report: Report) -> dict[str, int]:
    return {
        name: getattr(report, name) for name in ("files", "missing", "swept", "folders", "staged", "kept", "failed")
    }


def summary(report: Report, would: str) -> str:
    gone = f", {report.missing} of them gone already" if report.missing else ""
    staged = f"; {report.staged} tables that were staged and given up {would}dropped" if report.staged else ""
    swept = f"{report.swept} left by ended transactions or generated long ago {would}swept"
    return (
        f"{report.files} files {would}purged{gone}; {swept}; "
        f"{report.folders} folders of dropped tables {would}removed{staged}; {report.failed} failed"
    )


def run_fsck(
    session: Session,
    table: str,
    warehouse: str | None,
    every: bool,
    no_footers: bool,
    quarantine: bool,
    deep: bool,
) -> Exit:
    if deep and no_footers:
        raise usage_failure("--deep reads the files, --no-footers doesn't open them: leave one of them out")
    reported_s = time.monotonic()

    def progress(fsck: Fsck) -> None:
        nonlocal reported_s
        if time.monotonic() - reported_s >= REPORT_EACH_S:
            reported_s = time.monotonic()
            session.note(f"{fsck.versions} versions, {fsck.files} files, {fsck.rows_read} rows …")

    fsck = Fsck(
        session.client,
        warehouse_of(session, warehouse),
        find_table(session.client, table),
        footers=not no_footers,
        all_versions=every,
        quarantine=quarantine,
        deep=deep,
        progress=progress,
    )
    findings = 0
    with command_errors():
        for finding in fsck.run():
            findings += 1
            if session.as_json:
                session.show_json_lines([{"finding": finding.word, "path": finding.path, "facts": finding.facts}])
            else:
                session.say(str(finding))
    if session.as_json:
        rows = {"rows": fsck.rows_read} if deep else {}
        counted = {"files": fsck.files, **rows, "findings": findings, "quarantined": fsck.quarantined}
        session.show_json_lines([counted])
    rows_read = f" and {fsck.rows_read} rows" if deep else ""
    session.done(f"checked {fsck.files} files{rows_read}: {findings} findings, {fsck.quarantined} quarantined")
    return Exit.CORRUPT if findings else Exit.DONE


def run_show_mark(session: Session, warehouse: str | None) -> Exit:
    place = warehouse_of(session, warehouse)
    with command_errors():
        mark = read_mark(place)
    warehouse_info = session.client.get_warehouse()
    reason = ""
    try:
        check_mark(mark, warehouse_info, place)
    except InputError as error:
        reason = error.reason
    service = {
        "service_id": warehouse_info.service_id,
        "history_epoch": warehouse_info.history_epoch,
        "location": warehouse_info.location,
    }
    if session.as_json:
        session.show_json({"mark": asdict(mark) if mark is not None else None, "service": service, "reason": reason})
    else:
        session.say(f"{place} is marked by {describe(mark)}")
        session.say(f"the service is {warehouse_info.service_id}, history {warehouse_info.history_epoch}")
        if warehouse_info.location:
            session.say(f"its warehouse is {warehouse_info.location}")
    session.done(reason or "the warehouse is the service's")
    return Exit.REFUSED if reason else Exit.DONE


def run_adopt(session: Session, warehouse: str | None, yes: bool, dry_run: bool) -> None:
    place = warehouse_of(session, warehouse)
    try:
        before = describe(read_mark(place))
    except InputError:
        before = "something else"
    if dry_run:
        session.say(f"would adopt warehouse {place}, which is marked by {before}")
        return
    session.confirm(
        f"Mark {place} as this service's, so that it deletes files there? It is marked by {before}.", yes=yes
    )
    warehouse_info = adopt(session.client, place)
    answer = {"service_id": warehouse_info.service_id, "history_epoch": warehouse_info.history_epoch, "before": before}
    session.done(f"adopted warehouse {place}", answer)


@contextmanager
def command_errors() -> Iterator[None]:
    """Convert an InputError of the worker to an error of the command."""
    try:
        yield
    except InputError as error:
        raise CommandError(Exit.REFUSED, error.reason, str(error).removeprefix(f"{error.reason}: ")) from error


def lake_of(session: Session) -> str:
    """The folder, or the service's address."""
    settings = session.settings
    return str(existing(settings.folder).absolute()) if settings.folder else with_scheme(settings.server)


def warehouse_of(session: Session, given: str | None) -> str:
    """Where the data files lie: a folder with a service of its own is its own warehouse."""
    named = given or session.environment.get("LAKETX_WAREHOUSE", "") or session.settings.folder
    if not named:
        raise usage_failure(
            "--warehouse says where the data files lie", next_step="such as: --warehouse s3://bucket/lake"
        )
    return named


def held_versions(client: MetaClient, table_id: str = "") -> Iterator[str]:
    """Yield a sentence for each pin, tag and cursor at a version that is not the newest."""
    heads = {table.table_id: (table.name, table.head_version) for table in client.list_tables()}
    held = [(pin.table_id, pin.version, f"a pin of {pin.principal.name} keeps") for pin in client.list_pins()]
    held += [(tag.table_id, tag.version, f"the tag {tag.name} keeps") for tag in client.list_tags()]
    cursors = (cursor for cursor in client.list_cursors() if not cursor.expired)
    held += [
        (cursor.table_id, cursor.version, f"the cursor {cursor.name} keeps what comes after") for cursor in cursors
    ]
    for of_table, version, keeps in held:
        name, head = heads.get(of_table, ("", 0))
        if version < head and table_id in ("", of_table):
            yield f"{keeps} version {version} of {name}"
