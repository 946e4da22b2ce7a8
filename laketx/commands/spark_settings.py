"""`laketx spark-jar`: what a Spark session must be started with to know a lake's tables in SQL."""

from __future__ import annotations

from pathlib import Path

from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.output import Session
from metaservice.client.credentials import with_scheme
from worker.services.commands import warehouse_of
from worker.spark.catalog_jar import SPARK_MINOR, catalog_settings, find_jar, jar_name, jar_setting


def run_spark_jar(session: Session, name: str, warehouse: str | None) -> None:
    if find_jar() is None:
        hint = f"install the wheel laketx-spark-{SPARK_MINOR}, or build the jar with `make spark-jar` in a clone"
        raise CommandError(Exit.REFUSED, "JAR_MISSING", f"{jar_name()} is not installed here", {}, hint)
    folder = session.settings.folder
    uri = str(Path(folder).absolute()) if folder else with_scheme(session.settings.server)
    place = warehouse_of(session, warehouse)
    if "://" not in place and not place.startswith("file:"):
        place = str(Path(place).absolute())
    settings = {**jar_setting(), **catalog_settings(name, uri, place, session.settings.user)}
    if session.as_json:
        session.show_json(settings)
        return
    width = max(map(len, settings))
    for key, value in settings.items():
        session.say(f"{key.ljust(width)}  {value}")
