"""What is measured in both trees: rows, each with its work, and the lake that a process of a tree has for them.

Everything here and in the modules of rows runs with the packages of either tree, and so calls only what both have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from laketx import Lake, Table
from metaservice.client.meta_client import MetaClient

UNCOMPACTED = {"compaction.enabled": "false"}


@dataclass(frozen=True)
class Place:
    """A running service and its lake, in an empty folder."""

    folder: Path
    address: str
    client: MetaClient
    lake: Lake


@dataclass(frozen=True)
class Work:
    """One unit, which is measured, and what has to be done before each, which is not."""

    unit: Callable[[], object]
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Row:
    """A line of the result: what a unit does, and how to make its tables."""

    title: str
    make: Callable[[Place], Work]
    warm_ups: int = 3


def repeated(times: int, work: Callable[[], object]) -> Callable[[], None]:
    def unit() -> None:
        for _ in range(times):
            work()

    return unit


def restoring(table: Table, work: Callable[[], object]) -> Work:
    """Of a table that is brought back to this version before each unit."""
    version = table.refresh().meta.head_version

    def before() -> None:
        table.restore(version=version)

    return Work(work, before)
