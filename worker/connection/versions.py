"""The version that a caller means by a number, a time, a number of commits ago, or a tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Final

from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.base.values import EPOCH, MICROSECOND
from worker.connection.lake_connection import Connection
from worker.connection.pins import ReaderPins
from worker.connection.table_view import TableView

if TYPE_CHECKING:
    from worker.spark import session
else:
    session = LazyModule("worker.spark.session")

WITHOUT_SPARK: Final = ("SPARK_MISSING", "JAVA_MISSING")
Point = int | str | datetime
Zone = Callable[[], tzinfo | None]  # of times that name none


def zone_of(lake: Connection) -> tzinfo | None:
    """The session's zone, for times that name none; None: no Spark is here, or Python doesn't know that zone."""
    try:
        return session.session_zone(lake.spark)
    except InputError as error:
        if error.reason not in WITHOUT_SPARK:
            raise
        return None


def no_zone() -> None:
    """For reads without Spark, whose times have to name their zones."""


def version_of(
    table: TableView,
    version: int | None,
    timestamp: str | datetime | None,
    commits_ago: int | None,
    tag: str | None = None,
) -> int:
    """Return the version that a read would use, without pinning it; default the newest.

    A time without a zone is in the session's zone.
    """
    check_one_is_given(version, timestamp, commits_ago, tag)
    time_us = None if timestamp is None else time_us_of(timestamp, partial(zone_of, table.lake))
    resolved = table.client.resolve_version(
        table.table_id, version=version, time_us=time_us, commits_ago=commits_ago, tag=tag
    )
    return resolved.version


def check_one_is_given(*names: object) -> None:
    """Refuses two ways to name a version."""
    if sum(name is not None for name in names) > 1:
        raise InputError("VERSION_AMBIGUOUS", "give one of version, timestamp, commits_ago and tag")


def pinned_version(
    table: TableView,
    pins: ReaderPins,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
    tag: str | None = None,
) -> int:
    """The version that a read uses, which the pins hold from now on."""
    check_one_is_given(version, timestamp, commits_ago, tag)
    if timestamp is not None or commits_ago is not None or tag is not None:
        version = version_of(table, None, timestamp, commits_ago, tag)
    if version is None:
        return pins.hold_head(table.table_id)
    pins.hold(table.table_id, [version])
    return version


@contextmanager
def held_version(
    table: TableView,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
    tag: str | None = None,
) -> Iterator[int]:
    """A version for several reads, pinned until the block ends."""
    pins = ReaderPins(table.client)
    try:
        yield pinned_version(table, pins, version, timestamp, commits_ago, tag)
    finally:
        pins.close()


def version_at(table: TableView, point: Point, zone: Zone) -> int:
    """The version of one end of a range of changes."""
    if isinstance(point, bool) or not isinstance(point, (int, str, datetime)):
        raise InputError("POINT_INVALID", f"{point!r} is neither a version nor a time")
    if isinstance(point, int):
        return table.client.resolve_version(table.table_id, version=point).version
    return table.client.resolve_version(table.table_id, time_us=time_us_of(point, zone)).version


def time_us_of(moment: str | datetime, zone: Zone) -> int:
    """Return microseconds since 1970; `zone` is called only for a time that names none."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise InputError("TIMESTAMP_INVALID", f"{moment!r} is not a time like 2026-11-01 10:00:00Z") from None
    if not isinstance(moment, datetime):
        raise InputError("TIMESTAMP_INVALID", f"{moment!r} is not a time like 2026-11-01 10:00:00Z")
    if moment.tzinfo is None:
        default_zone = zone()
        if default_zone is None:
            raise InputError("TIMESTAMP_INVALID", f"{moment} has no time zone: write 2026-11-01 10:00:00Z, or +01:00")
        moment = moment.replace(tzinfo=default_zone)
    return (moment.astimezone(UTC) - EPOCH) // MICROSECOND
