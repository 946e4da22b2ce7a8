"""The row groups of a file that may have rows for which a condition is true: by their bounds, and by Bloom filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from protos.laketx.v1 import common_pb2
from worker.arrow.expressions.conditions import Predicate, columns_in, conjuncts, expression, value_of
from worker.arrow.scan.file_rows import InputFile, RowGroups, stored_names_in
from worker.files.bloom_filters import Hashes, hashes_of, may_have, physical_type
from worker.files.footers import top_leaves


def row_groups(file: InputFile, where: Predicate, schema: pa.Schema, *, has_names: bool) -> RowGroups | None:
    """Return the choice of a file's row groups; None if the condition excludes none.

    `schema` has the table's columns; `has_names`: the file has them under the same names, and so its bounds are used.
    Those of floats say nothing of NaN.
    """
    bounded = [part for part in conjuncts(where) if _has_bounds(part, schema)] if has_names else []
    equal = list(_equalities(where, schema))
    if not bounded and not equal:
        return None

    def may_match(stream: Any, opened: Any) -> list[int]:
        return _with_values(_within_bounds(stream, opened, bounded, schema), stream, opened, file, equal, schema)

    return may_match


def _has_bounds(part: Predicate, schema: pa.Schema) -> bool:
    kinds = [schema.field(name).type for name in columns_in(part)]
    return bool(kinds) and not any(pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in kinds)


def _within_bounds(stream: Any, opened: Any, parts: list[Predicate], schema: pa.Schema) -> list[int]:
    if opened.num_row_groups == 1 or not parts:  # a single row group has its file's bounds, which the service checked
        return list(range(opened.num_row_groups))
    from pyarrow import dataset  # noqa: PLC0415 - it loads pandas

    bounded = common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=parts))
    fragment = dataset.ParquetFileFormat().make_fragment(stream)
    return [group.id for group in fragment.subset(expression(bounded, schema), schema=schema).row_groups]


# -- Bloom filters


def _equalities(where: Predicate, schema: pa.Schema) -> Iterator[tuple[str, Sequence[common_pb2.Value]]]:
    """Yield the columns that must have one of some values, with these values."""
    for part in conjuncts(where):
        column, values = _values_of(part)
        if column and physical_type(schema.field(column).type) is not None:
            yield column, values


def _hashes(values: Sequence[common_pb2.Value], kind: pa.DataType) -> Hashes:
    """Return the hashes of the values without NULL, which equals nothing."""
    plain = (value_of(value, kind) for value in values)
    return hashes_of((value for value in plain if value is not None), kind)


def _values_of(part: Predicate) -> tuple[str, Sequence[common_pb2.Value]]:
    """Return the column of a condition that some values fulfil, and these; an empty name for other conditions."""
    match part.WhichOneof("kind"):
        case "compare" if part.compare.comparison == common_pb2.COMPARISON_EQUAL:
            return part.compare.column, [part.compare.value]
        case "in_list":
            return part.in_list.column, part.in_list.values
        case "any_of":
            parts = [_values_of(operand) for operand in part.any_of.operands]
            columns = {column for column, _ in parts}
            if len(columns) == 1:
                return columns.pop(), [value for _, values in parts for value in values]
        case _:
            pass
    return "", []


def _with_values(
    groups: list[int],
    stream: Any,
    opened: Any,
    file: InputFile,
    equal: Sequence[tuple[str, Sequence[common_pb2.Value]]],
    schema: pa.Schema,
) -> list[int]:
    metadata = opened.metadata
    if not groups or not equal or not _has_filters(metadata.row_group(groups[0])):
        return groups
    leaves = top_leaves(metadata)
    stored = opened.schema_arrow
    for column, values in equal:
        field = schema.field(column)
        names = stored_names_in(stored, pa.schema([field]), file)
        if len(names) != 1 or names[0] not in leaves or stored.field(names[0]).type != field.type:
            continue
        kind, hashes = physical_type(field.type), _hashes(values, field.type)
        chunks = [(group, metadata.row_group(group).column(leaves[names[0]])) for group in groups]
        groups = [group for group, chunk in chunks if chunk.physical_type != kind or may_have(stream, chunk, hashes)]
    return groups


def _has_filters(group: Any) -> bool:
    return any(group.column(at).bloom_filter_offset is not None for at in range(group.num_columns))
