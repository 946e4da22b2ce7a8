"""Time zones as Spark names them."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import SparkSession

_OFFSET: Final = re.compile(r"(?:GMT|UTC|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?\Z")


def session_zone(spark: SparkSession | None) -> tzinfo | None:
    """The session's time zone, None where Python doesn't know it."""
    return find_zone(spark.conf.get("spark.sql.session.timeZone") or "") if spark is not None else None


def find_zone(name: str) -> tzinfo | None:
    if name in ("Z", "UTC", "GMT"):
        return UTC
    offset = _OFFSET.match(name)
    if offset is not None:
        away = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-away if offset[1] == "-" else away)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
