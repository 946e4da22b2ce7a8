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
    """Numbers stand to the right, other values may take several lines."""
    return [Column(one.name, right=_is_number(one.type), folds=not _is_number(one.type)) for one in schema]


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
    found = texts(values)
    if pa.types.is_string(values.type):
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(found, '"', '""'), '"', "")
        is_plain = pc.invert(pc.match_substring_regex(found, '^$|[,"\r\n]'))
        found = pc.if_else(is_plain, found, quoted)
    return found.fill_null("")


# -- JSON


def json_lines(batch: pa.RecordBatch) -> str:
    """The rows of a batch, each a document on a line."""
    names = [_json_string(name).replace("%", "%%") for name in batch.schema.names]
    form = "{" + ", ".join(f"{name}: %s" for name in names) + "}\n"
    return "".join(form % row for row in zip(*map(json_texts, batch.columns), strict=True))


def json_texts(values: Any) -> list[str]:
    """Every value as a document: numbers are numbers, bytes base64, the keys of a map texts."""
    kind = values.type
    if pa.types.is_nested(kind):
        found = _nested(values)
    elif pa.types.is_binary(kind):
        found = ['""' if one is None else f'"{b64encode(one).decode()}"' for one in values.to_pylist()]
    elif pa.types.is_string(kind):
        found = ["" if one is None else _json_string(one) for one in values.to_pylist()]
    elif pa.types.is_temporal(kind):
        quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts(values), " ", "T"), '"', "")
        found = quoted.to_pylist()
    elif pa.types.is_floating(kind):
        found = [f'"{one}"' if one in NOT_FINITE else one for one in texts(values).to_pylist()]
    else:
        found = texts(values).to_pylist()
    if not values.null_count:
        return found
    return ["null" if gone else one for gone, one in zip(values.is_null().to_pylist(), found, strict=True)]


def _nested(values: Any) -> list[str]:
    """A value that is NULL gets a text too, which nobody uses."""
    kind = values.type
    if pa.types.is_struct(kind):
        names = [_json_string(one.name) for one in kind]
        columns = map(json_texts, values.flatten())
        rows = zip(*columns, strict=True) if names else [()] * len(values)
        return [_document(f"{name}: {one}" for name, one in zip(names, row, strict=True)) for row in rows]
    ends = list(pairwise(values.offsets.to_pylist()))
    if pa.types.is_map(kind):
        keys = [_json_string(str(one)) for one in texts(values.keys).to_pylist()]
        entries = [f"{key}: {item}" for key, item in zip(keys, json_texts(values.items), strict=True)]
        return [_document(entries[begin:end]) for begin, end in ends]
    elements = json_texts(values.values)
    return [f"[{', '.join(elements[begin:end])}]" for begin, end in ends]


def _document(entries: Any) -> str:
    return "{" + ", ".join(entries) + "}"


def _json_string(text: str) -> str:
    """What would steer a terminal in JSON's own escapes."""
    return _encoded(text) if text.isprintable() else json_text(text)


# -- one value


def texts(values: Any) -> Any:
    """As a table and CSV show them, nested ones as JSON. NULL stays NULL."""
    kind = values.type
    if pa.types.is_nested(kind):
        found = pa.array(json_texts(values), pa.string())
        return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.string()))
    if pa.types.is_binary(kind):
        return pa.array([None if one is None else f"X'{one.hex().upper()}'" for one in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        clock = values.cast(pa.timestamp("us"))  # the text of an instant is slow
        found = pc.replace_substring(clock.cast(pa.string()), ".000000", "")
        return found if kind.tz is None else pc.binary_join_element_wise(found, "Z", "")
    found = values.cast(pa.string())
    if pa.types.is_floating(kind):
        return _float_texts(found)
    if pa.types.is_decimal(kind) and pc.any(pc.match_substring(found, "E")).as_py():
        digits = [None if one is None else format(Decimal(one), "f") for one in found.to_pylist()]
        return pa.array(digits, pa.string())
    return found


def _float_texts(found: Any) -> Any:
    for form, instead in ((r"^(-?\d+)$", r"\1.0"), (r"^-?nan$", "NaN"), (r"^(-?)inf$", r"\1Infinity")):
        found = pc.replace_substring_regex(found, form, instead)
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
