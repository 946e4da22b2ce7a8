"""Columns and their changes as people write them: `amount decimal(10,2) not null comment 'net'`, `note after day`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import click

from metaservice.cli.failures import usage_failure
from metaservice.client import (
    add_column,
    comment_column,
    drop_column,
    move_column,
    relax_column,
    rename_column,
    widen_column,
)
from metaservice.client.column_texts import NAME, unquoted
from metaservice.shared import column_definitions
from metaservice.shared.column_definitions import ColumnWordsError
from metaservice.shared.column_types import type_text
from protos.laketx.v1 import catalog_pb2, common_pb2

PATH: Final = rf"{NAME}(?:\.{NAME})*"
ADDED: Final = re.compile(
    rf"(?P<path>{PATH})\s+(?P<type>.+?)(?P<not_null>\s+not\s+null)?(\s+comment\s+'(?P<comment>(?:[^']|'')*)')?"
    rf"(\s+(?P<first>first)|\s+after\s+(?P<after>{NAME}))?",
    re.IGNORECASE | re.DOTALL,
)
MOVED: Final = re.compile(rf"(?P<path>{PATH})\s+(first|after\s+(?P<after>{NAME}))", re.IGNORECASE)
TYPED: Final = re.compile(rf"(?P<path>{PATH})\s+(?P<type>.+)", re.DOTALL)
SIDES: Final = re.compile(r"((?:`(?:[^`]|``)+`|[^=`])+)=(.*)", re.DOTALL)
EXAMPLE: Final = 'write: "id bigint not null" or "day date comment \'of the order\'"'


def read_columns(text: str, key: Iterable[str]) -> list[catalog_pb2.Column]:
    """Read columns as in SQL, with commas. Key columns are not nullable, with or without NOT NULL."""
    keys = {name.lower() for name in key}
    try:
        columns = column_definitions.read_columns(text)
    except ColumnWordsError as error:
        raise usage_failure(str(error), next_step=EXAMPLE) from error
    if computed := [column.name for column in columns if column.default_sql]:
        raise usage_failure(f"{computed[0]} can't have a default here", next_step="set it in Spark SQL or in Python")
    return [
        catalog_pb2.Column(
            name=column.name,
            type=type_text(column.kind),
            nullable=column.nullable and column.name.lower() not in keys,
            comment=column.comment,
        )
        for column in columns
    ]


# -- changes: types of options, in the order in which they stand -------------------------------------------------------


def added(text: str) -> common_pb2.SchemaChange:
    match = _match(ADDED, text, "amount decimal(10,2) after day")
    if match["not_null"]:
        raise click.BadParameter(
            f"`{text}`: rows that are there have no value for it; add it without NOT NULL and fill it"
        )
    comment = (match["comment"] or "").replace("''", "'")
    return add_column(
        match["path"],
        _type(match["type"]),
        comment=comment,
        after=match["after"] or "",
        first=match["first"] is not None,
    )


def dropped(text: str) -> common_pb2.SchemaChange:
    return drop_column(text)


def renamed(text: str) -> common_pb2.SchemaChange:
    old, name = _sides(text, "pay=salary")
    return rename_column(old, unquoted(name))


def moved(text: str) -> common_pb2.SchemaChange:
    match = _match(MOVED, text, "note after day, note first")
    return move_column(match["path"], after=match["after"] or "")


def widened(text: str) -> common_pb2.SchemaChange:
    match = _match(TYPED, text, "id bigint")
    return widen_column(match["path"], _type(match["type"]))


def relaxed(text: str) -> common_pb2.SchemaChange:
    return relax_column(text)


def commented(text: str) -> common_pb2.SchemaChange:
    path, comment = _sides(text, "amount=net, in euros", may_be_empty=True)
    return comment_column(path, comment)


def _type(text: str) -> str:
    try:
        return type_text(column_definitions.read_type_words(text))
    except ColumnWordsError as error:
        raise click.BadParameter(str(error)) from error


def _match(pattern: re.Pattern[str], text: str, example: str) -> re.Match[str]:
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"`{text}` can't be read; such as: {example}")
    return match


def _sides(text: str, example: str, *, may_be_empty: bool = False) -> tuple[str, str]:
    match = SIDES.fullmatch(text)
    if match is None or not (match[2] or may_be_empty):
        raise click.BadParameter(f"`{text}` can't be read; such as: {example}")
    return match[1].strip(), match[2].strip()
