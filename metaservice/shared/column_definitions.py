"""Columns as people write them, with the spellings of Spark SQL: "id integer not null, s struct<a: long, b string>".

    column := name [:] type [NOT NULL] [DEFAULT expression] [COMMENT 'text']
    type   := word | decimal(p,s) | array<type> | map<type,type> | struct<name [:] type [NOT NULL] [COMMENT 'text'], …>

A name with other letters than a word's stands in backticks. Where paths are asked for, `address.zip` is a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metaservice.shared.column_types import ATOMIC, Array, Atomic, Decimal, Field, Map, Struct, Type, quoted

SPELLED: Final[Mapping[str, str]] = {
    **{word: word for word in ATOMIC},
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
DECIMALS: Final = ("decimal", "dec", "numeric")
_TEXT, _TIME = "use string", "keep a string, or bigint of microseconds"
_GEO, _PERIOD = "keep binary (st_asbinary)", "keep a number (bigint of microseconds, int of months) or string"
INSTEAD: Final[Mapping[str, str]] = {  # types of Spark that no column has
    **dict.fromkeys(("char", "character", "varchar"), _TEXT),
    "interval": _PERIOD,
    "time": _TIME,
    "variant": "keep a string (to_json), and parse_json it when it is read",
    "geography": _GEO,
    "geometry": _GEO,
    "void": "NULL alone has no type: name one",
}
FOREIGN: Final[Mapping[str, str]] = {  # types of others
    **dict.fromkeys(("text", "str", "utf8", "uuid", "json", "nvarchar"), "string"),
    **dict.fromkeys(("int64", "int8", "uint64", "number"), "bigint"),
    "int32": "int",
    "int16": "smallint",
    "float64": "double",
    "float32": "float",
    "bool": "boolean",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    **dict.fromkeys(("blob", "bytes", "bytea", "varbinary"), "binary"),
}
COLLATED: Final = "a column compares by bytes: use string, and collate(…) in a condition where another order is meant"
BY_BYTES: Final = "UTF8_BINARY"
DEPTH_MAX: Final = 32
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?P<word>\w+)|(?P<sign>\S))",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|[0-3][0-7]{2}|.)|''|\"\"", re.DOTALL)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ENDS: Final = ("not", "default", "comment")


class ColumnWordsError(ValueError):
    """The text is not a list of columns."""


class TypeMissingError(ColumnWordsError):
    """It names a type of Spark that no column has."""


@dataclass(frozen=True, slots=True)
class ColumnWords:
    """One column of such a text; `path` has more than one name for a field of a struct."""

    path: tuple[str, ...]
    kind: Type
    nullable: bool = True
    comment: str = ""
    default_sql: str = ""

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path[-1]

    @property
    def text(self) -> str:
        """The path as the wire has it."""
        return ".".join(map(quoted, self.path))


def read_columns(text: str, *, with_paths: bool = False) -> list[ColumnWords]:
    """Raises ColumnWordsError."""
    return _Words(text).columns(with_paths=with_paths)


def read_type_words(text: str) -> Type:
    """Read a type. Raises ColumnWordsError."""
    words = _Words(text)
    kind = words.type(0)
    words.expect_end()
    return kind


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    begin: int
    end: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


_END: Final = _Token("end", "", 0, 0)


class _Words:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens = [
            _Token(str(match.lastgroup), match[str(match.lastgroup)], match.start(str(match.lastgroup)), match.end())
            for match in _TOKEN.finditer(text.rstrip())
        ]

    def columns(self, *, with_paths: bool) -> list[ColumnWords]:
        columns = [self._column(with_paths=with_paths)]
        while self._take(","):
            columns.append(self._column(with_paths=with_paths))
        self.expect_end()
        return columns

    def expect_end(self) -> None:
        if self._next is not _END:
            raise self._wrong()

    def type(self, depth: int) -> Type:
        if depth > DEPTH_MAX:
            raise ColumnWordsError(f"`{self._text.strip()[:100]}` nests too deep")
        word = self._next.word
        if word in SPELLED:
            self._at += 1
            if word == "string" and self._take("collate") and (name := self._name()).upper() != BY_BYTES:
                raise TypeMissingError(f"string collate {name}: {COLLATED}")
            return Atomic(SPELLED[word])
        if word in DECIMALS:
            self._at += 1
            return self._decimal()
        if word in ("array", "map", "struct"):
            self._at += 1
            return self._nested(word, depth + 1)
        if word in INSTEAD:
            raise TypeMissingError(f"{word} can't be a column's type: {INSTEAD[word]}")
        hint = f": use {FOREIGN[word]}" if word in FOREIGN else ""
        raise ColumnWordsError(f"{word} is no type of a column{hint}") if word else self._wrong()

    # -- parts

    def _column(self, *, with_paths: bool) -> ColumnWords:
        path = [self._name()]
        while with_paths and self._take("."):
            path.append(self._name())
        self._take(":")
        kind = self.type(0)
        nullable, comment, default = True, "", ""
        while (word := self._next.word) in _ENDS:
            self._at += 1
            if word == "not":
                self._expect("null")
                nullable = False
            elif word == "comment":
                comment = self._string()
            else:
                default = self._expression()
        return ColumnWords(tuple(path), kind, nullable, comment, default)

    def _nested(self, word: str, depth: int) -> Type:
        self._expect("<")
        kind: Type
        if word == "array":
            kind = Array(self.type(depth))
        elif word == "map":
            key = self.type(depth)
            self._expect(",")
            kind = Map(key, self.type(depth))
        else:
            fields = [self._field(depth)]
            while self._take(","):
                fields.append(self._field(depth))
            kind = Struct(tuple(fields))
        self._expect(">")
        return kind

    def _field(self, depth: int) -> Field:
        name = self._name()
        self._take(":")
        kind = self.type(depth)
        nullable = not self._take("not")
        if not nullable:
            self._expect("null")
        if self._take("comment"):
            self._string()  # the fields of a table's structs have none
        return Field(name, kind, nullable)

    def _decimal(self) -> Decimal:
        if not self._take("("):
            return Decimal(10, 0)
        precision, scale = self._number(), 0
        if self._take(","):
            scale = self._number()
        self._expect(")")
        return Decimal(precision, scale)

    def _expression(self) -> str:
        """As it is written, up to the next comma outside of brackets, or the next property of the column."""
        begin, depth = self._at, 0
        while self._next is not _END:
            token = self._next
            if depth == 0 and self._at > begin and (token.text == "," or token.word in ("not", "comment")):
                break
            depth += (token.text == "(") - (token.text == ")")
            self._at += 1
        if self._at == begin:
            raise self._wrong()
        return self._text[self._tokens[begin].begin : self._tokens[self._at - 1].end]

    def _name(self) -> str:
        token = self._next
        if token.kind not in ("word", "name"):
            raise self._wrong()
        self._at += 1
        return token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text

    def _number(self) -> int:
        token = self._next
        if not re.fullmatch(r"[0-9]{1,4}", token.text):
            raise self._wrong()
        self._at += 1
        return int(token.text)

    def _string(self) -> str:
        token = self._next
        if token.kind != "text":
            raise self._wrong()
        self._at += 1
        return _ESCAPED.sub(_unescaped, token.text[1:-1])

    # -- tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self, text: str) -> bool:
        token = self._next
        is_it = token.kind in ("word", "sign") and token.text.lower() == text
        self._at += is_it
        return is_it

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong()

    def _wrong(self) -> ColumnWordsError:
        rest = self._text[self._next.begin :].strip() if self._next is not _END else ""
        where = f", from `{rest[:40]}` on" if rest and self._at else ""
        return ColumnWordsError(f"`{self._text.strip()[:200]}` is not a column{where}")


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped is None:
        return match[0][0]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    if len(escaped) == 3:
        return chr(int(escaped, 8))
    return _ESCAPES.get(escaped, escaped)
