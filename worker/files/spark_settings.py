"""`laketx spark-jar`: what a Spark session must be started with to know a lake's tables in SQL."""

from __future__ import annotations

from pathlib import Path

from metaservice.cli.command import Arguments
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.output import Session
from worker.base.spark_jar import catalog_settings, find_jar, jar_name, jar_setting
from worker.files.commands import warehouse_of


def run_spark_jar(session: Session, args: Arguments) -> None:
    if find_jar() is None:
        hint = "`make spark-jar` in a clone of the repository builds it"
        raise CommandError(Exit.REFUSED, "JAR_MISSING", f"{jar_name()} is not installed here", {}, hint)
    folder = session.settings.folder
    uri = str(Path(folder).absolute()) if folder else f"laketx://{session.settings.server}"
    warehouse = warehouse_of(session, args)
    if "://" not in warehouse and not warehouse.startswith("file:"):
        warehouse = str(Path(warehouse).absolute())
    found = {**jar_setting(), **catalog_settings(args.name, uri, warehouse, session.settings.user)}
    if session.as_json:
        session.show_json(found)
        return
    width = max(map(len, found))
    for key, value in found.items():
        session.say(f"{key.ljust(width)}  {value}")
