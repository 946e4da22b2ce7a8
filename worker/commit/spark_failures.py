"""Turns failures of Spark jobs that the caller's rows or expressions caused into InputErrors."""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError

DATA_EXCEPTION: Final = (
    "22"  # SQL's class of states for values: an overflow, a division by zero, a text that is no number
)
RAISED: Final = "P0001"  # by raise_error


def explain(error: Exception, meta: catalog_pb2.Table) -> InputError | None:
    """The error; None if values were not the cause."""
    if not isinstance(error, PySparkException):
        return None
    state = error.getSqlState() or ""
    if state.startswith(DATA_EXCEPTION) or state == RAISED:
        said = (error.getMessage() or str(error)).strip()
        return InputError("VALUE_INVALID", f"a value can't be computed or doesn't fit {meta.name}: {said}")
    return None
