"""Casts of rows on their way into a table: Spark's store assignment, and where nothing may be lost in it.

    1.9 into an int             1, by Spark's rule; of a key column, or under `write.strict_casts`, refused
    1.0 into an int             1, everywhere
    a timestamp into a date     the day; of a key column, or under `write.strict_casts`, refused as a type

Where a value may lose something the write's own job looks: cast there and back it must be what it was.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.schema import quoted
from worker.spark.column_types import check_type

MARK: Final = "LAKETX_CAST "
_SAYS: Final = ";"
_END: Final = " LAKETX_END"
_VALUE_CHARS: Final = 80
_INTEGERS: Final[tuple[type[t.DataType], ...]] = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_DIGITS: Final[dict[type[t.DataType], int]] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 19}
_EXACT: Final[dict[type[t.DataType], tuple[type[t.DataType], ...]]] = {
    t.FloatType: (t.ByteType, t.ShortType),
    t.DoubleType: (t.ByteType, t.ShortType, t.IntegerType, t.FloatType),
    t.TimestampType: (t.DateType,),
    t.TimestampNTZType: (t.DateType,),
}
_SOMETIMES_AS_TEXT: Final = (t.TimestampType,)  # an hour that comes twice has one text


def exactly(field: t.StructField, wanted: t.StructField) -> Column:
    """The column in a form that fails the job if a value does not survive the cast.

    Types that never survive it are refused.
    """
    value = sf.expr(quoted(field.name))
    if never_loses(field.dataType, wanted.dataType):
        return value
    kinds = field.dataType.simpleString(), wanted.dataType.simpleString()
    if always_loses(field.dataType, wanted.dataType):
        raise InputError(
            "CAST_LOSSY",
            f"{wanted.name} is {kinds[1]}, the rows have {kinds[0]}: cast it yourself before the write",
        )
    there_and_back = value.try_cast(wanted.dataType).try_cast(field.dataType).eqNullSafe(value)
    facts = [sf.lit(MARK + _SAYS.join((_hex(wanted.name), kinds[0], kinds[1], "")))]
    told = sf.concat(*facts, sf.left(value.cast("string"), sf.lit(_VALUE_CHARS)), sf.lit(_END))
    failure = sf.raise_error(told).cast(field.dataType)
    return sf.when(value.isNull() | there_and_back, value).otherwise(failure)


def explain_cast(error: Exception, meta: catalog_pb2.Table) -> InputError | None:
    """The error of a failed job, if a cast was the cause."""
    _, mark, rest = str(error).partition(MARK)
    said = rest.partition(_END)[0].split(_SAYS, 3)
    if not mark or len(said) != 4:
        return None
    name, given, wanted, value = bytes.fromhex(said[0]).decode(), *said[1:]
    why = "in key columns" if name in meta.primary_key else "under write.strict_casts"
    return InputError(
        "CAST_LOSSY",
        f"{value} ({given}) would change in a cast to {wanted}, the type of {name} in {meta.name}: cast it yourself "
        f"before the write ({why} casts must keep every value)",
    )


def never_loses(given: t.DataType, wanted: t.DataType) -> bool:
    """Whether every value of the one type survives in the other."""
    match given, wanted:
        case t.NullType(), _:
            return True
        case t.StructType(), t.StructType():
            known = {field.name.lower(): field.dataType for field in wanted.fields}
            return all(
                field.name.lower() not in known or never_loses(field.dataType, known[field.name.lower()])
                for field in given.fields
            )
        case t.ArrayType(), t.ArrayType():
            return never_loses(given.elementType, wanted.elementType)
        case t.MapType(), t.MapType():
            return never_loses(given.keyType, wanted.keyType) and never_loses(given.valueType, wanted.valueType)
        case t.DecimalType(), t.DecimalType():
            return wanted.scale >= given.scale and wanted.precision - wanted.scale >= given.precision - given.scale
        case _, t.DecimalType() if type(given) in _DIGITS:
            return wanted.precision - wanted.scale >= _DIGITS[type(given)]
        case _, t.StringType():
            return not isinstance(given, (*_SOMETIMES_AS_TEXT, t.BinaryType))
        case _ if isinstance(given, _INTEGERS) and isinstance(wanted, _INTEGERS):
            return _INTEGERS.index(type(given)) <= _INTEGERS.index(type(wanted))
    return given == wanted or type(given) in _EXACT.get(type(wanted), ())


def always_loses(given: t.DataType, wanted: t.DataType) -> bool:
    """Whether the type itself is refused: a date has no time, bytes are no text, parts of values are not checked."""
    nested = (t.StructType, t.ArrayType, t.MapType)
    if isinstance(given, nested) and isinstance(wanted, nested):
        return True
    is_time = isinstance(given, (t.TimestampType, t.TimestampNTZType))
    return (is_time and isinstance(wanted, t.DateType)) or (
        isinstance(given, t.BinaryType) and isinstance(wanted, t.StringType)
    )


def check_types(rows: t.StructType) -> None:
    """Checks that tables have the type of every column of the rows."""
    for field in rows.fields:
        check_type(field.dataType)


def _hex(text: str) -> str:
    return text.encode().hex()
