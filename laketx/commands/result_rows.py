"""What a statement answers, as a table, as JSON or as CSV. Spark writes the values as text, so they look as in SQL."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain, islice
from typing import Final, Literal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, NumericType, StructField

from metaservice.cli.output import Column, Session
from worker.formats.text_values import NULL, csv_line

Form = Literal["table", "json", "csv"]
ROWS_SHOWN: Final = 1_000


def show(session: Session, frame: DataFrame, form: Form, limit: int | None) -> str:
    """Prints the rows; returns how many there were, in words. `limit` 0: all of them; None: what suits the form."""
    most = limit if limit is not None else (ROWS_SHOWN if form == "table" else 0)
    match form:
        case "table":
            return _show_table(session, frame, most)
        case "json":
            return _count(_write_json(session, _first(frame, most)))
        case "csv":
            return _count(_write_csv(_first(frame, most)))


def _show_table(session: Session, frame: DataFrame, most: int) -> str:
    fields = frame.schema.fields
    rows = _texts(_first(frame, most + 1 if most else 0)).collect()
    more = bool(most) and len(rows) > most
    shown = rows[:most] if more else rows
    columns = [_column(field) for field in fields]
    session.show_rows(columns, [[NULL if cell is None else cell for cell in row] for row in shown])
    return f"the first {_count(most)}; --limit 0 shows all" if more else _count(len(shown))


def _write_json(session: Session, frame: DataFrame) -> int:
    """A document a row. A name that comes again gets a number."""
    named = frame.toDF(*distinct(frame.columns))
    text = sf.to_json(sf.struct("*"), {"ignoreNullFields": "false"})
    count = 0
    for row in named.select(text).toLocalIterator():
        session.write(row[0])
        count += 1
    return count


def _write_csv(frame: DataFrame) -> int:
    rows = _texts(frame).toLocalIterator()
    first = list(islice(rows, 1))  # a statement that fails prints nothing
    sys.stdout.write(csv_line(frame.columns))
    count = 0
    for row in chain(first, rows):
        sys.stdout.write(csv_line(list(row)))
        count += 1
    sys.stdout.flush()
    return count


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names; a repeated name gets a number."""
    distinct_names: dict[str, str] = {}
    given = {name.lower() for name in names}
    for name in names:
        text, number = name, 1
        while text.lower() in distinct_names or (number > 1 and text.lower() in given):
            number += 1
            text = f"{name}_{number}"
        distinct_names[text.lower()] = text
    return list(distinct_names.values())


def _first(frame: DataFrame, most: int) -> DataFrame:
    return frame.limit(most) if most else frame


def _texts(frame: DataFrame) -> DataFrame:
    """Take cells by number, since names may repeat."""
    fields = frame.schema.fields
    named = frame.toDF(*(f"c{number}" for number in range(len(fields))))
    return named.select([_text(f"c{number}", field) for number, field in enumerate(fields)])


def _text(name: str, field: StructField) -> SparkColumn:
    if isinstance(field.dataType, BinaryType):
        return sf.concat(sf.lit("X'"), sf.hex(name), sf.lit("'"))
    return sf.col(name).cast("string")


def _column(field: StructField) -> Column:
    is_number = isinstance(field.dataType, NumericType)
    return Column(field.name, right=is_number, folds=not is_number)


def _count(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
