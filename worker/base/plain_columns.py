"""Columns in words that need no SQL parser: "id bigint not null, tags array<string>"."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from metaservice.client.column_texts import read_columns
from metaservice.column_types import (
    ATOMIC,
    Array,
    Atomic,
    Decimal,
    Map,
    Struct,
    Type,
    TypeTextError,
    read_type,
    type_text,
)
from protos.laketx.v1 import catalog_pb2
from worker.base.schema import check_name


def plain_columns(text: str, keys: Collection[str]) -> list[catalog_pb2.Column] | None:
    """None if Spark has to read it: other words for types, defaults, quotes in comments."""
    if "\\" in text or '"' in text or "''" in text:
        return None
    try:
        found = read_columns(text, keys)
        kinds = [read_type(one.type) for one in found]
    except (ValueError, TypeTextError):
        return None
    if not all(word in ATOMIC for kind in kinds for word in _words(kind)):
        return None
    for column, kind in zip(found, kinds, strict=True):
        check_name(column.name)
        column.type = type_text(kind)
    return found


def _words(kind: Type) -> Iterator[str]:
    match kind:
        case Atomic(name):
            yield name
        case Array(element):
            yield from _words(element)
        case Map(key, value):
            yield from _words(key)
            yield from _words(value)
        case Struct(fields):
            for one in fields:
                yield from _words(one.kind)
        case Decimal():
            return
