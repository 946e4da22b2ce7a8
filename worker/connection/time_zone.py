"""The time zone of times that name none: that of the lake's Spark session."""

from __future__ import annotations

from datetime import tzinfo
from typing import TYPE_CHECKING, Final

from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.connection.lake_connection import Connection

if TYPE_CHECKING:
    from worker.spark import session
else:
    session = LazyModule("worker.spark.session")

WITHOUT_SPARK: Final = ("SPARK_MISSING", "JAVA_MISSING")


def zone_of(lake: Connection) -> tzinfo | None:
    """None: there is no Spark here, or Python doesn't know the session's zone."""
    try:
        return session.session_zone(lake.spark)
    except InputError as error:
        if error.reason not in WITHOUT_SPARK:
            raise
        return None
