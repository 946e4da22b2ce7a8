"""The policy of table services, from a table's properties."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Final

from metaservice.core import limits
from metaservice.core.table.column_properties import CLUSTER_ORDER
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Operation
from metaservice.core.table.properties import integer_property, text_property
from metaservice.core.table.property_forms import parse_row_order
from metaservice.core.table.schedule import ScheduleEntry, Window, parse_schedule, parse_windows
from metaservice.core.table.types import folded
from metaservice.shared.column_types import quoted

WORK: Final = {
    "minor": Operation.MINOR_COMPACT,
    "major": Operation.MAJOR_COMPACT,
    "cluster": Operation.CLUSTER,
}
MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
NEVER_US: Final = 2**62


class RowOrder(IntEnum):
    """How rows are ordered. The numbers are the wire's."""

    NONE = 0
    SORT = 1
    ZORDER = 2


class Age(IntEnum):
    """The purposes for which entries age."""

    MINOR = 0
    MAJOR = 1
    CLUSTER = 2
    QUIET = 3
    SETTLE = 4
    INLINED = 5


@dataclass(frozen=True, slots=True)
class Options:
    """How to write the outputs."""

    file_bytes_target: int
    order: RowOrder = RowOrder.NONE
    order_columns: tuple[str, ...] = ()

    @property
    def row_order(self) -> str:
        """The order in a file's format."""
        return f"{self.order.name.lower()}({','.join(map(quoted, self.order_columns))})" if self.order else ""


@dataclass(frozen=True)
class Policy:
    """Thresholds and limits; with `only`, what an operator asks for regardless of thresholds.

    An age of 0 is never reached.
    """

    enabled: bool
    keyed: bool
    by_partition: bool
    minor_files: int
    minor_bytes: int
    major_percent: int
    cluster_files: int
    ages_us: tuple[int, int, int, int, int, int]
    options: Options
    task_bytes: int
    task_files: int
    tasks: int
    priority: int
    windows: tuple[Window, ...]
    schedule: tuple[ScheduleEntry, ...]
    order_unknown: str = ""
    only: Operation | None = None

    @property
    def file_bytes_target(self) -> int:
        return self.options.file_bytes_target

    @cached_property
    def first_age(self) -> Age:
        """The lower of the ages of small files and deltas."""
        return min((Age.MINOR, Age.MAJOR, Age.CLUSTER), key=lambda age: self.ages_us[age] or NEVER_US)

    def wanting(self, operation: Operation, options: Options | None = None) -> Policy:
        """The policy of an operator who asks for an operation now."""
        return replace(self, only=operation, minor_files=2, minor_bytes=0, options=options or self.options)

    def unbounded(self) -> Policy:
        """Without the bounds of a task."""
        return replace(self, task_files=limits.COUNT_MAX, task_bytes=limits.COUNT_MAX)


def policy_of(meta: TableMeta) -> Policy:
    properties = meta.properties

    def number(name: str) -> int:
        return integer_property(properties, f"compaction.{name}")

    options, unknown = _options(meta)
    ages_us = (
        number("minor.age.minutes") * MINUTE_US,
        number("major.age.hours") * HOUR_US,
        number("cluster.age.hours") * HOUR_US,
        number("major.quiet.minutes") * MINUTE_US,
        number("settle.minutes") * MINUTE_US,
        number("inlined.age.minutes") * MINUTE_US,
    )
    return Policy(
        enabled=text_property(properties, "compaction.enabled") == "true",
        keyed=meta.keyed,
        by_partition=meta.profile is Profile.MAXCOMPUTE,
        minor_files=number("minor.files"),
        minor_bytes=number("minor.bytes"),
        major_percent=number("major.percent"),
        cluster_files=number("cluster.files"),
        ages_us=ages_us,
        options=options,
        task_bytes=number("task.bytes"),
        task_files=number("task.files"),
        tasks=number("tasks"),
        priority=number("priority"),
        windows=parse_windows(text_property(properties, "compaction.windows")),
        schedule=parse_schedule(text_property(properties, "compaction.schedule")),
        order_unknown=unknown,
    )


def _options(meta: TableMeta) -> tuple[Options, str]:
    """How to write the outputs, and the column of the wanted order that the table lacks, if any."""
    target = integer_property(meta.properties, "write.file_bytes_target")
    kind, columns = parse_row_order(text_property(meta.properties, CLUSTER_ORDER))
    if not kind or meta.keyed:
        return Options(target), ""
    names = {folded(column.name): column.name for column in meta.columns}
    unknown = next((name for name in columns if folded(name) not in names), "")
    if unknown:
        return Options(target), unknown
    return Options(target, RowOrder[kind.upper()], tuple(names[folded(name)] for name in columns)), ""
