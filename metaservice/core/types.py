"""Column types in Spark's words: parsed strictly, written canonically, widened where no value changes.

    decimal( 10, 2 )                             -> decimal(10,2)
    struct<street: string, tags: array<string>>  -> struct<street:string,tags:array<string>>
    struct<`a b`: int, `c`: int>                 -> struct<`a b`:int,c:int>

A name that is not of plain letters, digits and _ stands in backticks, in types and in paths; a backtick in it is
doubled.
Every nested field has an id beside its column's: a struct's fields by name, an array's `element`, a map's `key` and
`value`. Texts don't show ids; `nested_ids` lists them by path and `with_ids` puts them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import invalid

INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
ATOMIC: Final = frozenset(
    {*INTEGERS, "boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"}
)
DECIMAL_DIGITS_MAX: Final = 38
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_]+\Z")
_PUNCTUATION: Final = frozenset("<>(),:")
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z0-9_]+|[<>(),:])")
_STEP = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`]+))(\.|\Z)")
_STEERS: Final = frozenset("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_WIDER: Final = {  # what each type may become without a change of any value
    **{narrow: frozenset(INTEGERS[at + 1 :]) for at, narrow in enumerate(INTEGERS)},
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
_EXACT_IN_DOUBLE: Final = frozenset({"tinyint", "smallint", "int"})


@dataclass(frozen=True, slots=True)
class Atomic:
    """A type without parts."""

    name: str


@dataclass(frozen=True, slots=True)
class Decimal:
    """decimal(precision,scale)."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct; a table's columns are fields too."""

    name: str
    kind: Type
    nullable: bool = True
    field_id: int = 0
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields, in order."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type."""

    element: Type
    element_id: int = 0


@dataclass(frozen=True, slots=True)
class Map:
    """Values by key."""

    key: Type
    value: Type
    key_id: int = 0
    value_id: int = 0


Type = Atomic | Decimal | Struct | Array | Map


def parse_type(text: str) -> Type:
    """Raises where the text is no type."""
    if len(text) > limits.TYPE_CHARS_MAX:
        raise invalid("TYPE_TOO_LONG", chars=len(text), most=limits.TYPE_CHARS_MAX)
    parser = _Parser(text)
    kind = parser.parse(0)
    if parser.peek():
        raise parser.refusal()
    return kind


def type_text(kind: Type) -> str:
    """The canonical text."""
    match kind:
        case Atomic(name):
            return name
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Array(element):
            return f"array<{type_text(element)}>"
        case Map(key, value):
            return f"map<{type_text(key)},{type_text(value)}>"
        case Struct(fields):
            return f"struct<{','.join(_field_text(field) for field in fields)}>"


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
    """Of a column or field: anything that a terminal takes as it stands."""
    is_clean = not any(ord(each) < 32 or 127 <= ord(each) < 160 or each in _STEERS for each in name)
    if not name or len(name) > limits.NAME_CHARS_MAX or not is_clean:
        raise invalid(
            "NAME_INVALID",
            "a column's name has no control characters",
            name=name[: limits.NAME_CHARS_MAX],
            most=limits.NAME_CHARS_MAX,
        )


def quoted(name: str) -> str:
    """As types and paths have it."""
    return name if PLAIN_NAME.match(name) else f"`{name.replace('`', '``')}`"


def split_path(path: str) -> tuple[str, ...]:
    """The names in `address.zip` or "`a.b`.c". Raises where it is none."""
    names: list[str] = []
    at, ends = 0, False
    while not ends:
        found = _STEP.match(path, at)
        if found is None:
            raise invalid("NAME_INVALID", "names joined by dots, odd ones in backticks", name=path[:128])
        names.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at, ends = found.end(), not found[3]
    return tuple(names)


def folded(name: str) -> str:
    """The same for names that engines take as one: each letter without regard to its case."""
    if name.isascii():
        return name.lower()
    return "".join(_folded_letter(each) for each in name)


def _folded_letter(letter: str) -> str:
    upper = letter.upper()
    lower = (upper if len(upper) == 1 else letter).lower()
    return lower if len(lower) == 1 else letter


def did_you_mean(name: str, known: Iterable[str]) -> dict[str, str]:
    """The fact `did_you_mean`, where something known is close."""
    found = get_close_matches(name[:128], sorted(known), n=1, cutoff=0.6)
    return {"did_you_mean": found[0]} if found else {}


def _field_text(field: Field) -> str:
    return f"{quoted(field.name)}:{type_text(field.kind)}{'' if field.nullable else ' not null'}"


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


class _Parser:
    """type := word | decimal(p,s) | array<type> | map<type,type> | struct<name:type [not null], …>."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[str] = []
        while self._at < len(text.rstrip()):
            found = _TOKEN.match(text, self._at)
            if found is None:
                raise self.refusal()
            self._tokens.append(found[1])
            self._at = found.end()
        self._tokens.reverse()

    def peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def refusal(self) -> Exception:
        word = re.split(r"[^a-z_]", self._text.strip().lower(), maxsplit=1)[0]
        known = ATOMIC | {"decimal", "array", "map", "struct"}
        return invalid("TYPE_UNKNOWN", "a type in Spark's words", type=self._text[:64], **did_you_mean(word, known))

    def parse(self, depth: int) -> Type:
        if depth > limits.TYPE_DEPTH_MAX:
            raise invalid("TYPE_TOO_DEEP", most=limits.TYPE_DEPTH_MAX, type=self._text[:64])
        word = self._next()
        if word in ATOMIC:
            return Atomic(word)
        match word:
            case "decimal":
                return self._decimal()
            case "array":
                self._expect("<")
                element = self.parse(depth + 1)
                self._expect(">")
                return Array(element)
            case "map":
                self._expect("<")
                key = self.parse(depth + 1)
                self._expect(",")
                value = self.parse(depth + 1)
                self._expect(">")
                return Map(key, value)
            case "struct":
                return self._struct(depth)
            case _:
                raise self.refusal()

    def _decimal(self) -> Decimal:
        if self.peek() != "(":
            return Decimal(10, 0)
        self._expect("(")
        precision, scale = self._digits(), 0
        if self.peek() == ",":
            self._expect(",")
            scale = self._digits()
        self._expect(")")
        if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
            raise invalid("DECIMAL_INVALID", precision=precision, scale=scale, most=DECIMAL_DIGITS_MAX)
        return Decimal(precision, scale)

    def _struct(self, depth: int) -> Struct:
        self._expect("<")
        fields = [self._field(depth)]
        while self.peek() == ",":
            self._expect(",")
            fields.append(self._field(depth))
        self._expect(">")
        check_unique(field.name for field in fields)
        return Struct(tuple(fields))

    def _field(self, depth: int) -> Field:
        name = self._next()
        if name in _PUNCTUATION:
            raise self.refusal()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        check_name(name)
        self._expect(":")
        kind = self.parse(depth + 1)
        nullable = self.peek() != "not"
        if not nullable:
            self._expect("not")
            self._expect("null")
        return Field(name, kind, nullable)

    def _digits(self) -> int:
        word = self._next()
        if not re.fullmatch(r"[0-9]{1,4}", word):
            raise self.refusal()
        return int(word)

    def _next(self) -> str:
        if not self._tokens:
            raise self.refusal()
        return self._tokens.pop()

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self.refusal()


def check_unique(names: Iterable[str]) -> None:
    """Names that differ in case alone are the same: engines look columns up without regard to case."""
    seen: set[str] = set()
    for name in names:
        if folded(name) in seen:
            raise invalid("COLUMN_TWICE", "names are unique, whatever their case", column=name)
        seen.add(folded(name))
