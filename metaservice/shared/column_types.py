"""The grammar of column types, shared by the service, the workers and the client.

    decimal( 10, 2 )                             -> decimal(10,2)
    struct<street: string, tags: array<string>>  -> struct<street:string,tags:array<string>>
    struct<`a b`: int, `c`: int>                 -> struct<`a b`:int,c:int>

    type := word | decimal(p,s) | array<type> | map<type,type> | struct<name:type [not null], …>

A name that is not of plain letters, digits and _ stands in backticks; a backtick in it is doubled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
ATOMIC: Final = frozenset(
    {*INTEGERS, "boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"}
)
BLOOM_COLUMNS: Final = "index.bloom.columns"  # the property that lists columns with Bloom filters
BLOOM_TYPES: Final = "strings, binary, integers, dates, timestamps, and decimals of up to 18 digits"
_BLOOM: Final = frozenset({*INTEGERS, "string", "binary", "date", "timestamp", "timestamp_ntz"})
_BLOOM_DIGITS: Final = 18  # files have decimals of more as bytes
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_]+\Z")
_PUNCTUATION: Final = frozenset("<>(),:")
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z0-9_]+|[<>(),:])")


class TypeTextError(ValueError):
    """The text is not a type; `too_deep` if it nests too deeply."""

    def __init__(self, *, too_deep: bool = False) -> None:
        super().__init__("nested too deep" if too_deep else "not a type")
        self.too_deep = too_deep


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
    default_sql: str = ""


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


def read_type(text: str, depth_max: int = 32) -> Type:
    """Raises TypeTextError. Names and decimal digits are not checked here: the keeper of types checks them."""
    return _Parser(text, depth_max).whole()


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


def may_have_bloom_filter(text: str) -> bool:
    """Whether columns of the type can have Bloom filters: equal values are the same bytes in every file."""
    kind = read_type(text)
    if isinstance(kind, Decimal):
        return kind.precision <= _BLOOM_DIGITS
    return isinstance(kind, Atomic) and kind.name in _BLOOM


def quoted(name: str) -> str:
    """A name as in types and paths."""
    return name if PLAIN_NAME.match(name) else f"`{name.replace('`', '``')}`"


def _field_text(field: Field) -> str:
    return f"{quoted(field.name)}:{type_text(field.kind)}{'' if field.nullable else ' not null'}"


class _Parser:
    def __init__(self, text: str, depth_max: int) -> None:
        self._depth_max = depth_max
        self._tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise TypeTextError
            self._tokens.append(match[1])
            at = match.end()
        self._tokens.reverse()

    def whole(self) -> Type:
        kind = self.parse(0)
        if self._tokens:
            raise TypeTextError
        return kind

    def peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def parse(self, depth: int) -> Type:
        if depth > self._depth_max:
            raise TypeTextError(too_deep=True)
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
                raise TypeTextError

    def _decimal(self) -> Decimal:
        if self.peek() != "(":
            return Decimal(10, 0)
        self._expect("(")
        precision, scale = self._digits(), 0
        if self.peek() == ",":
            self._expect(",")
            scale = self._digits()
        self._expect(")")
        return Decimal(precision, scale)

    def _struct(self, depth: int) -> Struct:
        self._expect("<")
        fields = [self._field(depth)]
        while self.peek() == ",":
            self._expect(",")
            fields.append(self._field(depth))
        self._expect(">")
        return Struct(tuple(fields))

    def _field(self, depth: int) -> Field:
        name = self._next()
        if name in _PUNCTUATION:
            raise TypeTextError
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
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
            raise TypeTextError
        return int(word)

    def _next(self) -> str:
        if not self._tokens:
            raise TypeTextError
        return self._tokens.pop()

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise TypeTextError
