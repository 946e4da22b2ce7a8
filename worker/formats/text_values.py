"""Values in Arrow as text, of which tables, CSV and lines of JSON are made. No Spark here."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from metaservice.cli.output import Column
from metaservice.shared.terminal import json_text

NULL: Final = "NULL"
ROWS_AT_ONCE: Final = 1 << 14
NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_encoded = json.JSONEncoder(ensure_ascii=False).encode


# -- a table


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns: numbers are aligned to the right, other values may take several lines."""
    return [Column(field.name, right=_is_number(field.type), folds=not _is_number(field.type)) for field in schema]


def cells(batch: pa.RecordBatch) -> Iterator[Sequence[str]]:
    """The rows of a batch."""
    yield from zip(*(texts(column).fill_null(NULL).to_pylist() for column in batch.columns), strict=True)


# -- CSV


def csv_line(values: Sequence[str | None]) -> str:
    """NULL is an empty cell, an empty text is quoted: Python's own writer does so from 3.12 on alone."""
    return ",".join(map(_csv_cell, values)) + "\n"


def _csv_cell(cell: str | None) -> str:
    if cell is None:
        return ""
    plain = cell and not any(sign in cell for sign in ',"\r\n')
    return cell if plain else '"' + cell.replace('"', '""') + '"'


def csv_lines(batch: pa.RecordBatch) -> str:
    """The rows of a batch, each a line, as `csv_line` has them."""
    columns = [_csv_cells(column) for column in batch.columns]
    return "".join(f"{line}\n" for line in pc.binary_join_element_wise(*columns, ",").to_pylist())


def _csv_cells(values: Any) -> Any:
    cell_texts = texts(values)
    if pa.types.is_string(values.type):
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(cell_texts, '"', '""'), '"', "")
        is_plain = pc.invert(pc.match_substring_regex(cell_texts, '^$|[,"\r\n]'))
        cell_texts = pc.if_else(is_plain, cell_texts, quoted)
    return cell_texts.fill_null("")


# -- JSON


def json_lines(batch: pa.RecordBatch) -> str:
    """The rows of a batch, each a document on a line."""
    names = [_json_string(name).replace("%", "%%") for name in batch.schema.names]
    form = "{" + ", ".join(f"{name}: %s" for name in names) + "}\n"
    return "".join(form % row for row in zip(*map(json_texts, batch.columns), strict=True))


def json_texts(values: Any) -> list[str]:
    """Return each value as a JSON document: bytes as base64, a map's keys as texts."""
    kind = values.type
    if pa.types.is_nested(kind):
        documents = _nested(values)
    elif pa.types.is_binary(kind):
        documents = ['""' if raw is None else f'"{b64encode(raw).decode()}"' for raw in values.to_pylist()]
    elif pa.types.is_string(kind):
        documents = ["" if text is None else _json_string(text) for text in values.to_pylist()]
    elif pa.types.is_temporal(kind):
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts(values), " ", "T"), '"', "")
        documents = quoted.to_pylist()
    elif pa.types.is_floating(kind):
        documents = [f'"{text}"' if text in NOT_FINITE else text for text in texts(values).to_pylist()]
    else:
        documents = texts(values).to_pylist()
    if not values.null_count:
        return documents
    return [
        "null" if is_null else document
        for is_null, document in zip(values.is_null().to_pylist(), documents, strict=True)
    ]


def _nested(values: Any) -> list[str]:
    """Return the texts of nested values. NULL gets a text too, which the caller ignores."""
    kind = values.type
    if pa.types.is_struct(kind):
        names = [_json_string(field.name) for field in kind]
        columns = map(json_texts, values.flatten())
        rows = zip(*columns, strict=True) if names else [()] * len(values)
        return [_document(f"{name}: {document}" for name, document in zip(names, row, strict=True)) for row in rows]
    ends = list(pairwise(values.offsets.to_pylist()))
    if pa.types.is_map(kind):
        keys = [_json_string(str(key)) for key in texts(values.keys).to_pylist()]
        entries = [f"{key}: {item}" for key, item in zip(keys, json_texts(values.items), strict=True)]
        return [_document(entries[begin:end]) for begin, end in ends]
    elements = json_texts(values.values)
    return [f"[{', '.join(elements[begin:end])}]" for begin, end in ends]


def _document(entries: Any) -> str:
    return "{" + ", ".join(entries) + "}"


def _json_string(text: str) -> str:
    """Return a JSON string. Characters that would control a terminal are escaped."""
    return _encoded(text) if text.isprintable() else json_text(text)


# -- one value


def texts(values: Any) -> Any:
    """Return values as tables and CSV show them: nested values as JSON. NULL stays NULL."""
    kind = values.type
    if pa.types.is_nested(kind):
        shown = pa.array(json_texts(values), pa.string())
        return pc.if_else(values.is_valid(), shown, pa.scalar(None, pa.string()))
    if pa.types.is_binary(kind):
        return pa.array([None if raw is None else f"X'{raw.hex().upper()}'" for raw in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        clock = values.cast(pa.timestamp("us"))  # the text of an instant is slow
        shown = pc.replace_substring(clock.cast(pa.string()), ".000000", "")
        return shown if kind.tz is None else pc.binary_join_element_wise(shown, "Z", "")
    shown = values.cast(pa.string())
    if pa.types.is_floating(kind):
        return _float_texts(shown)
    if pa.types.is_decimal(kind) and pc.any(pc.match_substring(shown, "E")).as_py():
        digits = [None if text is None else format(Decimal(text), "f") for text in shown.to_pylist()]
        return pa.array(digits, pa.string())
    return shown


def _float_texts(shown: Any) -> Any:
    for form, instead in ((r"^(-?\d+)$", r"\1.0"), (r"^-?nan$", "NaN"), (r"^(-?)inf$", r"\1Infinity")):
        shown = pc.replace_substring_regex(shown, form, instead)
    return shown


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
