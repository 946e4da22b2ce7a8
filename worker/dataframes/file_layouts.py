"""Values of partitions as Spark has them, whatever the session's time zone."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import common_pb2


def partition_literal(value: common_pb2.Value, kind: t.DataType) -> Column:
    """A partition's value as Spark has it, whatever the session's time zone."""
    match value.WhichOneof("kind"):
        case "null" | None:
            return sf.lit(None).cast(kind)
        case "date":
            return sf.date_from_unix_date(sf.lit(value.date)).cast(kind)
        case "timestamp_us" if isinstance(kind, t.TimestampNTZType):
            return sf.expr(f"{as_clock(f'{value.timestamp_us}L')}")
        case "timestamp_us":
            return sf.timestamp_micros(sf.lit(value.timestamp_us))
        case found:
            return sf.lit(getattr(value, found)).cast(kind)


def as_clock(micros: str) -> str:
    """A Spark expression for the UTC clock time so many microseconds after 1970, whatever the session's zone."""
    return f"timestampadd(MICROSECOND, {micros}, timestamp_ntz'1970-01-01 00:00:00')"
