"""The changes of a table's columns that an ALTER asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """The position of a column: first, or behind another column of the same struct."""

    after: str = ""


@dataclass(frozen=True, slots=True)
class Add:
    """A column or nested field."""

    path: str
    type: str
    nullable: bool = True
    comment: str = ""
    place: ColumnPlace | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Drops a column: its values are no longer read."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Changes the last part of a path."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Move:
    """Moves a column; the order matters to people and SELECT *."""

    path: str
    place: ColumnPlace


@dataclass(frozen=True, slots=True)
class Widen:
    """Changes a type to one that holds every old value."""

    path: str
    type: str


@dataclass(frozen=True, slots=True)
class Relax:
    """Allows NULL from now on."""

    path: str


@dataclass(frozen=True, slots=True)
class Comment:
    """Sets a top-level column's comment, for people; makes no schema version."""

    path: str
    comment: str


@dataclass(frozen=True, slots=True)
class Default:
    """Sets what inserts write that leave a top-level column out; makes no schema version. Rows that are there stay."""

    path: str
    default_sql: str


SchemaChange = Add | Drop | Rename | Move | Widen | Relax | Comment | Default
