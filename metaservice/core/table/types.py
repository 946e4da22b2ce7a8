"""Column types: what is a type, which changes of type keep every value, and the ids of nested fields.

Every nested field has an id beside its column's: a struct's fields by name, an array's `element`, a map's `key` and
`value`. Texts don't show ids; `nested_ids` lists them by path and `with_ids` puts them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.shared.column_types import (
    ATOMIC,
    INTEGERS,
    Array,
    Atomic,
    Decimal,
    Map,
    Struct,
    Type,
    TypeTextError,
    quoted,
    read_type,
)

DECIMAL_DIGITS_MAX: Final = 38
_STEP = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`]+))(\.|\Z)")
_STEERS: Final = frozenset("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_WIDER: Final = {  # what each type may become without a change of any value
    **{narrow: frozenset(INTEGERS[at + 1 :]) for at, narrow in enumerate(INTEGERS)},
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
_EXACT_IN_DOUBLE: Final = frozenset({"tinyint", "smallint", "int"})


def parse_type(text: str) -> Type:
    """Raises if the text is not a type that a column can have."""
    if len(text) > limits.TYPE_CHARS_MAX:
        raise invalid("TYPE_TOO_LONG", chars=len(text), most=limits.TYPE_CHARS_MAX)
    try:
        kind = read_type(text, limits.TYPE_DEPTH_MAX)
    except TypeTextError as error:
        if error.too_deep:
            raise invalid("TYPE_TOO_DEEP", most=limits.TYPE_DEPTH_MAX, type=text[:64]) from None
        word = re.split(r"[^a-z_]", text.strip().lower(), maxsplit=1)[0]
        near = did_you_mean(word, ATOMIC | {"decimal", "array", "map", "struct"})
        raise invalid("TYPE_UNKNOWN", type=text[:64], **near) from None
    _check(kind)
    return kind


def _check(kind: Type) -> None:
    match kind:
        case Decimal(precision, scale) if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
            raise invalid("DECIMAL_INVALID", precision=precision, scale=scale, most=DECIMAL_DIGITS_MAX)
        case Struct(fields):
            for field in fields:
                check_name(field.name)
            check_unique(field.name for field in fields)
        case _:
            pass
    for _, child, _ in _children(kind):
        _check(child)


def may_widen(before: Type, after: Type) -> bool:
    """Whether every value of the one is the same value of the other. A date is no instant without a time zone."""
    match before, after:
        case Atomic(narrow), Atomic(wide):
            return wide in _WIDER.get(narrow, ()) or (wide == "double" and narrow in _EXACT_IN_DOUBLE)
        case Decimal(precision, scale), Decimal(more, finer):
            return before != after and finer >= scale and more - finer >= precision - scale
        case _:
            return False


def nested_ids(kind: Type, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Paths of nested fields with their ids, parents first."""
    for name, child, number in _children(kind):
        path = prefix + quoted(name)
        yield path, number
        yield from nested_ids(child, f"{path}.")


def with_ids(kind: Type, ids: Mapping[str, int], prefix: str = "") -> Type:
    """The same type with these ids; 0 where a path has none."""
    return _renumbered(kind, lambda path, _: ids.get(path, 0), prefix)


def with_new_ids(kind: Type, next_id: Callable[[], int]) -> Type:
    """The same type; nested fields without an id get the next ones."""
    return _renumbered(kind, lambda _, number: number or next_id(), "")


def count_fields(kind: Type) -> int:
    return sum(1 for _ in nested_ids(kind))


def check_name(name: str) -> None:
    """Checks the name of a column or field: any text without control characters."""
    is_clean = not any(ord(each) < 32 or 127 <= ord(each) < 160 or each in _STEERS for each in name)
    if not name or len(name) > limits.NAME_CHARS_MAX or not is_clean:
        raise invalid(
            "NAME_INVALID",
            "a column's name must not contain control characters",
            name=name[: limits.NAME_CHARS_MAX],
            most=limits.NAME_CHARS_MAX,
        )


def split_path(path: str) -> tuple[str, ...]:
    """Return the names in `address.zip` or "`a.b`.c". Raises if the text is not a path."""
    names: list[str] = []
    at, ends = 0, False
    while not ends:
        match = _STEP.match(path, at)
        if match is None:
            raise invalid(
                "NAME_INVALID",
                "not a path: join names with dots, and quote unusual ones with backticks",
                name=path[:128],
            )
        names.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at, ends = match.end(), not match[3]
    return tuple(names)


def folded(name: str) -> str:
    """The same text for names that engines treat as equal: each letter regardless of case."""
    if name.isascii():
        return name.lower()
    return "".join(_folded_letter(each) for each in name)


def _folded_letter(letter: str) -> str:
    upper = letter.upper()
    lower = (upper if len(upper) == 1 else letter).lower()
    return lower if len(lower) == 1 else letter


def did_you_mean(name: str, names: Iterable[str]) -> dict[str, str]:
    """Return the fact `did_you_mean`, if one of the names is close."""
    matches = get_close_matches(name[:128], sorted(names), n=1, cutoff=0.6)
    return {"did_you_mean": matches[0]} if matches else {}


def _children(kind: Type) -> list[tuple[str, Type, int]]:
    match kind:
        case Struct(fields):
            return [(field.name, field.kind, field.field_id) for field in fields]
        case Array(element, element_id):
            return [("element", element, element_id)]
        case Map(key, value, key_id, value_id):
            return [("key", key, key_id), ("value", value, value_id)]
        case _:
            return []


def _renumbered(kind: Type, number: Callable[[str, int], int], prefix: str) -> Type:
    def child(name: str, below: Type, old: int) -> tuple[int, Type]:
        path = prefix + quoted(name)
        return number(path, old), _renumbered(below, number, f"{path}.")

    match kind:
        case Struct(fields):
            renumbered = []
            for field in fields:
                field_id, below = child(field.name, field.kind, field.field_id)
                renumbered.append(replace(field, kind=below, field_id=field_id))
            return Struct(tuple(renumbered))
        case Array(element, element_id):
            element_id, element = child("element", element, element_id)
            return Array(element, element_id)
        case Map(key, value, key_id, value_id):
            key_id, key = child("key", key, key_id)
            value_id, value = child("value", value, value_id)
            return Map(key, value, key_id, value_id)
        case _:
            return kind


def check_unique(names: Iterable[str]) -> None:
    """Names that differ only in case are equal, because engines look columns up regardless of case."""
    seen: set[str] = set()
    for name in names:
        if folded(name) in seen:
            raise invalid("COLUMN_TWICE", "two names differ only in case: choose another name", column=name)
        seen.add(folded(name))
