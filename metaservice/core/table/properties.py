"""The known properties of a table, as data; all others belong under `user.`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.limits import RETAIN_HOURS_DEFAULT, TEXT_CHARS_MAX, VIEW_TEXT_CHARS_MAX
from metaservice.core.table.property_forms import is_checks, is_column_list, is_row_order
from metaservice.core.table.schedule import is_schedule, is_windows
from metaservice.core.table.types import did_you_mean
from metaservice.core.table.view_definition import (
    CANONICAL,
    FAILURE,
    QUERY,
    SCHEDULE,
    SOURCES,
    STRICT,
    SUSPENDED,
    is_failure,
    is_query,
    is_sources,
)
from metaservice.shared.column_types import BLOOM_COLUMNS
from metaservice.shared.view_schedules import is_view_schedule

USER_PREFIX: Final = "user."
KEY_SCOPE: Final = "key.scope"
KEY_CHECKED: Final = "key.scope.checked"
TABLE, PARTITION = "table", "partition"  # its values
MERGE_ENGINE: Final = "merge.engine"
WHOLE, PARTIAL = "whole", "partial"  # its values
ONLY_BY_MERGE: Final = "write.only_by_merge"
APPEND_REBASE: Final = "iceberg.append_rebase"
MERGE_CHECKS: Final = "merge.checks"
_CHECKED: Final = re.compile(r"^(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,8})\Z")
_USER_NAME = re.compile(r"user\.[A-Za-z0-9_.-]{1,250}\Z")
_INTEGER = re.compile(r"[0-9]{1,18}\Z")


@dataclass(frozen=True, slots=True)
class Property:
    """A known property. `binds_writers`: after a change of it, writers that began earlier must begin again.

    `is_fixed`: set when the table is created, never changed. `is_of_service`: no caller ever sets or removes it.
    """

    name: str
    default: str
    doc: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    binds_writers: bool = False
    is_fixed: bool = False
    is_of_service: bool = False
    form: str = ""
    is_form: Callable[[str], bool] | None = None
    chars: int = TEXT_CHARS_MAX  # at most, if it has a form

    @property
    def type(self) -> str:
        """The accepted values, as documents show them."""
        return self.form or " | ".join(self.choices) or f"integer, {self.low} to {self.high}"

    def accepts(self, value: str) -> bool:
        if self.is_form is not None:
            return len(value) <= self.chars and self.is_form(value)
        if self.choices:
            return value in self.choices
        return bool(_INTEGER.match(value)) and self.low <= int(value) <= self.high


PROPERTIES: Final = (
    Property(
        "data.retain.hours",
        str(RETAIN_HOURS_DEFAULT),
        "How long old versions stay readable, and how long a dropped table can be undropped.",
        low=0,
        high=87_600,
    ),
    Property(
        KEY_SCOPE,
        TABLE,
        "Where a primary key is unique: in the table, or within a partition. A key that lacks partition columns has to "
        "say it. A change to `table` first shows as `checking`: a worker checks the keys that are there.",
        choices=(TABLE, PARTITION),
        binds_writers=True,
    ),
    Property(
        KEY_CHECKED,
        "0:0",
        "How far the check of the keys is while `key.scope` is `checking`: a number of the check, and how many buckets "
        "have no key twice. The check alone sets it.",
        is_of_service=True,
        form="check:buckets",
        is_form=lambda value: bool(_CHECKED.match(value)),
    ),
    Property(
        MERGE_ENGINE,
        WHOLE,
        "What a new image of a row replaces: the whole row, or the columns that it sets "
        "([partial updates](row-level.md#partial-updates)). Set when the table is created; never changes.",
        choices=(WHOLE, PARTIAL),
        is_fixed=True,
    ),
    Property(
        BLOOM_COLUMNS,
        "",
        "The columns whose values get [Bloom filters](reading.md#bloom-filters) in the files that are written from now "
        "on. Strings, binary, integers, dates, timestamps, and decimals of up to 18 digits can have one.",
        form="column, … | empty: none",
        is_form=is_column_list,
    ),
    Property(
        "compaction.verify",
        "true",
        "Whether compactions take digests of their inputs and outputs. If set to true, a compaction without digests "
        "is refused.",
        choices=("true", "false"),
    ),
    Property(
        "compaction.enabled",
        "true",
        "Whether table services plan and run tasks by themselves; an operator's requests run anyway.",
        choices=("true", "false"),
    ),
    Property(
        "compaction.minor.files",
        "10",
        "A minor compaction is planned from this many delta files in a bucket, or small files in a partition of an "
        "append table.",
        low=2,
        high=10_000,
    ),
    Property(
        "compaction.minor.bytes",
        "67108864",
        "A minor compaction is planned from this many bytes in such files, if there are at least two.",
        low=1_024,
        high=1 << 40,
    ),
    Property(
        "compaction.minor.age.minutes",
        "60",
        "A minor compaction is planned from this age of such files, if there are at least two; 0: never.",
        low=0,
        high=5_256_000,
    ),
    Property(
        "compaction.inlined.age.minutes",
        "60",
        "Inlined rows of this age are written to files by a minor compaction, however few they are; 0: never.",
        low=0,
        high=5_256_000,
    ),
    Property(
        "compaction.major.percent",
        "30",
        "A major compaction is planned when deltas reach this percentage of base files, or hidden rows of all rows.",
        low=1,
        high=1_000_000,
    ),
    Property(
        "compaction.major.age.hours",
        "24",
        "A major compaction is planned from this age of delta files and delete sets; 0: never.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.major.quiet.minutes",
        "10",
        "A major compaction is planned only after the partition has had no commit for this long; profile maxcompute "
        "only.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.settle.minutes",
        "1",
        "After a bucket (append table: a partition) has had no commit for this long, files below the thresholds are "
        "merged too, if that is cheap; 0: never.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.cluster.files",
        "10",
        "Clustering is planned from this many small base files in a bucket, or files in a partition that are not in "
        "the wanted order.",
        low=2,
        high=10_000,
    ),
    Property(
        "compaction.cluster.age.hours",
        "24",
        "Clustering is planned from this age of such files; 0: never.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.cluster.order",
        "",
        "The order of rows in files of an append table that table services write. It follows renames and drops.",
        form="sort(column, …) | zorder(column, …) | empty: as they come",
        is_form=is_row_order,
    ),
    Property(
        "compaction.task.bytes",
        "8589934592",
        "The most bytes that one task reads; a bucket that can't be split may have more.",
        low=1_024,
        high=1 << 44,
    ),
    Property(
        "compaction.task.files",
        "1000",
        "The most files that one task reads; a bucket that can't be split may have more.",
        low=2,
        high=10_000,
    ),
    Property("compaction.tasks", "4", "The most tasks of the table that run at the same time.", low=1, high=1_000),
    Property("compaction.priority", "0", "Tasks of higher priority are handed out first.", low=0, high=1_000),
    Property(
        "compaction.windows",
        "",
        "The times at which planned tasks may be handed out, in UTC.",
        form="[day[-day] ]HH:MM-HH:MM; … | empty: always",
        is_form=is_windows,
    ),
    Property(
        "compaction.schedule",
        "",
        "The times at which work is planned regardless of the thresholds, in UTC.",
        form="minute hour day-of-month month day-of-week minor|major|cluster; … | empty: never",
        is_form=is_schedule,
    ),
    Property(
        "write.file_bytes_target",
        "134217728",
        "The size that writers aim at, in bytes.",
        low=1_024,
        high=1 << 40,
        binds_writers=True,
    ),
    Property(
        "write.inline.rows",
        "1000",
        "A write of so few rows without Spark, or an INSERT of SQL that [brings them with it](spark-sql.md#writing), "
        "puts them into its commit instead of a file; a write without Spark to many partitions or buckets may have a "
        "hundredth of them for each. 0: never.",
        low=0,
        high=100_000,
    ),
    Property(
        "write.inline.bytes",
        "262144",
        "The bytes that the rows of such a write have at most.",
        low=0,
        high=1 << 19,
    ),
    Property(
        "write.compression",
        "zstd",
        "The compression codec of Parquet files.",
        choices=("zstd", "snappy", "gzip", "lz4", "uncompressed"),
        binds_writers=True,
    ),
    Property(
        "write.on_conflict",
        "auto",
        "What a client does after a conflict, unless it chooses otherwise. `auto` resubmits blind INSERTs and fails "
        "everything else.",
        choices=("auto", "fail", "resubmit", "rerun"),
        binds_writers=True,
    ),
    Property(
        ONLY_BY_MERGE,
        "false",
        "Whether the table takes commits only by the merge of a branch. Table services still compact it, and ALTERs "
        "still change what is no column.",
        choices=("true", "false"),
    ),
    Property(
        "isolation.reads",
        TABLE,
        "Which of its reads a write of Spark or Python declares that changes the table: those of this table, or those "
        "of all tables of the lake, as a transaction over several tables does.",
        choices=(TABLE, "all"),
        binds_writers=True,
    ),
    Property(
        "write.strict_casts",
        "false",
        "Whether rows whose values would change in a cast to their column's type are refused; in key columns they "
        "always are.",
        choices=("true", "false"),
        binds_writers=True,
    ),
    Property(
        MERGE_CHECKS,
        "",
        "What must hold on a branch for a merge into the table: a query that answers true, or a JSON list of such "
        "queries. Clients run them; a merge by a client that doesn't is refused.",
        form="a query | a JSON list of queries | empty: none",
        is_form=is_checks,
    ),
    Property(
        APPEND_REBASE,
        "false",
        "Whether appends by Iceberg's clients are taken although rows changed since the snapshot that they require. A "
        "client that decided by what it read then adds rows twice.",
        choices=("true", "false"),
    ),
    Property(
        QUERY,
        "",
        "The query of a [materialized view](views.md). Set when the view is created; never changes.",
        is_fixed=True,
        form="a query | empty: an ordinary table",
        is_form=is_query,
        chars=VIEW_TEXT_CHARS_MAX,
    ),
    Property(
        CANONICAL,
        "",
        "The query of a materialized view with every name resolved and every star expanded.",
        is_fixed=True,
        form="a query | empty: an ordinary table",
        is_form=is_query,
        chars=VIEW_TEXT_CHARS_MAX,
    ),
    Property(
        SOURCES,
        "",
        "The ids of the tables and columns that a materialized view reads, by their names when it was created.",
        is_fixed=True,
        form="JSON | empty: an ordinary table",
        is_form=is_sources,
        chars=VIEW_TEXT_CHARS_MAX,
    ),
    Property(
        STRICT,
        "false",
        "Whether a refresh of a materialized view that can be incremental is never full because that is faster.",
        is_fixed=True,
        choices=("true", "false"),
    ),
    Property(
        SCHEDULE,
        "",
        "When [workers refresh](views.md#schedules) a materialized view.",
        form="on commit | every N UNIT | target lag N UNIT | downstream | empty: never",
        is_form=is_view_schedule,
    ),
    Property(
        SUSPENDED,
        "false",
        "Whether workers leave a materialized view as it is, whatever its schedule.",
        choices=("true", "false"),
    ),
    Property(
        FAILURE,
        "",
        "Why a worker could not refresh a materialized view, with the time. Workers set it.",
        form="JSON | empty: none",
        is_form=is_failure,
    ),
)
BY_NAME: Final = {definition.name: definition for definition in PROPERTIES}
PROPERTY_CHARS: Final = {definition.name: definition.chars for definition in PROPERTIES}
WRITER_PROPERTIES: Final = frozenset(definition.name for definition in PROPERTIES if definition.binds_writers)


def check_property(name: str, value: str) -> None:
    """Refuse an unknown name or a value that doesn't fit."""
    check_property_name(name)
    definition = BY_NAME.get(name)
    if definition is not None and definition.is_of_service:
        raise _not_for_callers(name)
    if definition is not None and not definition.accepts(value):
        raise invalid("PROPERTY_INVALID", property=name, value=value[:128], takes=definition.type)


def check_property_name(name: str) -> None:
    if name not in BY_NAME and not _USER_NAME.match(name):
        hint = did_you_mean(name, tuple(BY_NAME))
        raise invalid("PROPERTY_UNKNOWN", property=name[:128], **hint)


def check_alterable(name: str) -> None:
    """Refuses a change of a property that is fixed at creation."""
    if name in BY_NAME and BY_NAME[name].is_of_service:
        raise _not_for_callers(name)
    if name in BY_NAME and BY_NAME[name].is_fixed:
        raise MetaError(ErrorKind.BLOCKED, "PROPERTY_FIXED", property=name)


def _not_for_callers(name: str) -> MetaError:
    sentence = "the service sets this property itself: leave it out"
    return MetaError(ErrorKind.BLOCKED, "PROPERTY_FIXED", sentence, property=name)


def check_user_property(name: str) -> None:
    """Accepts only users' properties, for objects without known ones."""
    if not _USER_NAME.match(name):
        raise invalid("PROPERTY_UNKNOWN", property=name[:128])


def integer_property(properties: Mapping[str, str], name: str) -> int:
    """The value in force; a stored value that doesn't fit counts as not set."""
    definition = BY_NAME[name]
    value = properties.get(name, definition.default)
    return int(value if definition.accepts(value) else definition.default)


def text_property(properties: Mapping[str, str], name: str) -> str:
    """The value in force; a stored value that doesn't fit counts as not set."""
    definition = BY_NAME[name]
    value = properties.get(name, definition.default)
    return value if definition.accepts(value) else definition.default
