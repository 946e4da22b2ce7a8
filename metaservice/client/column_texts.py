"""Columns as people write them: "id bigint not null, amount decimal(10,2) comment 'net'"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from protos.laketx.v1 import catalog_pb2

NAME: Final = r"(?:`(?:[^`]|``)+`|\w+)"
COLUMN: Final = re.compile(
    rf"(?P<name>{NAME})\s+(?P<type>.+?)(?P<not_null>\s+not\s+null)?(\s+comment\s+'(?P<comment>(?:[^']|'')*)')?",
    re.IGNORECASE | re.DOTALL,
)


def read_columns(text: str, key: Iterable[str]) -> list[catalog_pb2.Column]:
    """As in SQL, with commas. Key columns are not nullable, whether it is said or not."""
    return [read_column(part, key) for part in split_outside_brackets(text)]


def read_column(text: str, key: Iterable[str]) -> catalog_pb2.Column:
    found = COLUMN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"`{text.strip()}` is not a column")
    name = unquoted(found["name"])
    nullable = found["not_null"] is None and name.lower() not in {one.lower() for one in key}
    return catalog_pb2.Column(
        name=name,
        type=type_text(found["type"]),
        nullable=nullable,
        comment=(found["comment"] or "").replace("''", "'"),
    )


def unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def type_text(text: str) -> str:
    """Words in lower case, as the service wants them; names of a struct's fields stay."""
    return re.sub(r"`(?:[^`]|``)+`|\w+\b(?!\s*:)", lambda word: _lower(word[0]), text.strip())


def _lower(word: str) -> str:
    return word if word.startswith("`") else word.lower()


def split_outside_brackets(text: str) -> list[str]:
    """At commas, those inside of decimal(10,2), struct<a: int, b: int>, quotes or backticks apart."""
    parts, depth, quoted = [""], 0, ""
    for each in text:
        if each in "'`" and quoted in ("", each):
            quoted = "" if quoted else each
        if not quoted:
            depth += (each in "(<") - (each in ")>")
        if each == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += each
    return parts
