"""The properties of a table that mean something here, as data; everything else belongs under `user.`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.limits import ORDER_COLUMNS_MAX, RETAIN_HOURS_DEFAULT, TEXT_CHARS_MAX
from metaservice.core.schedule import is_schedule, is_windows
from metaservice.core.types import did_you_mean, folded

USER_PREFIX: Final = "user."
KEY_SCOPE: Final = "key.scope"
TABLE, PARTITION = "table", "partition"  # its values
_USER_NAME = re.compile(r"user\.[A-Za-z0-9_.-]{1,250}\Z")
_ORDER_COLUMN: Final = r"\s*(?:`(?:[^`\x00-\x1f]|``)+`|[^(),`\x00-\x1f]+)\s*"
_ROW_ORDER = re.compile(rf"(sort|zorder)\(({_ORDER_COLUMN}(?:,{_ORDER_COLUMN})*)\)\Z")
_INTEGER = re.compile(r"[0-9]{1,18}\Z")


def parse_row_order(text: str) -> tuple[str, tuple[str, ...]]:
    """ "sort" or "zorder" with its columns; both empty where rows lie as they come. Raises ValueError.

    A name with a comma, a bracket or a backtick in it stands in backticks.
    """
    if not text.strip():
        return "", ()
    found = _ROW_ORDER.match(text.strip())
    columns = tuple(_column(name.strip()) for name in re.findall(_ORDER_COLUMN, found[2])) if found else ()
    is_once = len({folded(name) for name in columns}) == len(columns)
    if found is None or not all(columns) or not is_once or len(columns) > ORDER_COLUMNS_MAX:
        raise ValueError(text)
    return found[1], columns


def _column(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def is_row_order(text: str) -> bool:
    try:
        parse_row_order(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Property:
    """A known one. `binds_writers`: a change of it makes writers that began before it begin again.

    `is_fixed`: given when the table is made, and never changed.
    """

    name: str
    default: str
    doc: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    binds_writers: bool = False
    is_fixed: bool = False
    form: str = ""
    is_form: Callable[[str], bool] | None = None

    @property
    def type(self) -> str:
        """As documents show it."""
        return self.form or " | ".join(self.choices) or f"integer, {self.low} to {self.high}"

    def accepts(self, value: str) -> bool:
        if self.is_form is not None:
            return len(value) <= TEXT_CHARS_MAX and self.is_form(value)
        if self.choices:
            return value in self.choices
        return bool(_INTEGER.match(value)) and self.low <= int(value) <= self.high


PROPERTIES: Final = (
    Property(
        "data.retain.hours",
        str(RETAIN_HOURS_DEFAULT),
        "How long old versions, and the table itself once dropped, can be brought back.",
        low=0,
        high=87_600,
    ),
    Property(
        KEY_SCOPE,
        TABLE,
        "Where a primary key is unique: in the table, for which it contains the partition columns; or within a "
        "partition. Given when the table is made; never changed.",
        choices=(TABLE, PARTITION),
        is_fixed=True,
    ),
    Property(
        "compaction.verify",
        "true",
        "Whether compactions take digests of what they read and wrote. Set to true, one without them is refused.",
        choices=("true", "false"),
    ),
    Property(
        "compaction.enabled",
        "true",
        "Whether table services run by themselves; what an operator asks for runs anyhow.",
        choices=("true", "false"),
    ),
    Property(
        "compaction.minor.files",
        "10",
        "Delta files of a bucket, or small files of a partition without key, from which on a minor one is planned.",
        low=2,
        high=10_000,
    ),
    Property(
        "compaction.minor.bytes",
        "67108864",
        "Bytes of such files, two at least, from which on a minor one is planned.",
        low=1_024,
        high=1 << 40,
    ),
    Property(
        "compaction.minor.age.minutes",
        "60",
        "Age of such files, two at least, from which on a minor one is planned; 0: never.",
        low=0,
        high=5_256_000,
    ),
    Property(
        "compaction.major.percent",
        "30",
        "Share of delta files to base files, or of hidden rows, from which on a major one is planned.",
        low=1,
        high=1_000_000,
    ),
    Property(
        "compaction.major.age.hours",
        "24",
        "Age of delta files and delete sets from which on a major one is planned; 0: never.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.major.quiet.minutes",
        "10",
        "How long a partition must have had no commit before a major one is planned; profile maxcompute alone.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.settle.minutes",
        "1",
        "How long a bucket, or a partition without key, must have had no commit before what the thresholds left is "
        "merged too, where that is cheap; 0: never.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.cluster.files",
        "10",
        "Small base files of a bucket, or files of a partition that are not in the wanted order, from which on "
        "clustering is planned.",
        low=2,
        high=10_000,
    ),
    Property(
        "compaction.cluster.age.hours",
        "24",
        "Age of such files from which on clustering is planned; 0: never.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.cluster.order",
        "",
        "Order of the rows in files of a table without key that table services write.",
        form="sort(column, …) | zorder(column, …) | empty: as they come",
        is_form=is_row_order,
    ),
    Property(
        "compaction.task.bytes",
        "8589934592",
        "Most bytes that one task reads; a bucket that can only be taken whole may have more.",
        low=1_024,
        high=1 << 44,
    ),
    Property(
        "compaction.task.files",
        "1000",
        "Most files that one task reads; a bucket that can only be taken whole may have more.",
        low=2,
        high=10_000,
    ),
    Property("compaction.tasks", "4", "Tasks of the table that run at a time.", low=1, high=1_000),
    Property("compaction.priority", "0", "Tasks of higher priority are handed out first.", low=0, high=1_000),
    Property(
        "compaction.windows",
        "",
        "When planned tasks are handed out, in UTC.",
        form="[day[-day] ]HH:MM-HH:MM; … | empty: always",
        is_form=is_windows,
    ),
    Property(
        "compaction.schedule",
        "",
        "When work is planned whatever the thresholds say, in UTC.",
        form="minute hour day-of-month month day-of-week minor|major|cluster; … | empty: never",
        is_form=is_schedule,
    ),
    Property(
        "write.file_bytes_target",
        "134217728",
        "Size that writers aim at, in bytes.",
        low=1_024,
        high=1 << 40,
        binds_writers=True,
    ),
    Property(
        "write.compression",
        "zstd",
        "Codec of Parquet files.",
        choices=("zstd", "snappy", "gzip", "lz4", "uncompressed"),
        binds_writers=True,
    ),
    Property(
        "write.on_conflict",
        "fail",
        "What a client does after a lost race, unless it says otherwise.",
        choices=("fail", "resubmit", "rerun"),
        binds_writers=True,
    ),
    Property(
        "write.strict_casts",
        "false",
        "Whether rows that would lose something in a cast to their column's type are refused; in key columns they "
        "always are.",
        choices=("true", "false"),
        binds_writers=True,
    ),
)
BY_NAME: Final = {one.name: one for one in PROPERTIES}
WRITER_PROPERTIES: Final = frozenset(one.name for one in PROPERTIES if one.binds_writers)


def check_property(name: str, value: str) -> None:
    """Refuses an unknown name or a value that doesn't fit."""
    check_property_name(name)
    known = BY_NAME.get(name)
    if known is not None and not known.accepts(value):
        raise invalid("PROPERTY_INVALID", property=name, value=value[:128], takes=known.type)


def check_property_name(name: str) -> None:
    if name not in BY_NAME and not _USER_NAME.match(name):
        hint = did_you_mean(name, tuple(BY_NAME))
        raise invalid("PROPERTY_UNKNOWN", "put your own under user.", property=name[:128], **hint)


def check_alterable(name: str) -> None:
    """Refuses a change of what is decided when a table is made."""
    if name in BY_NAME and BY_NAME[name].is_fixed:
        raise MetaError(ErrorKind.BLOCKED, "PROPERTY_FIXED", "it is given when the table is made", property=name)


def check_user_property(name: str) -> None:
    """For what has no properties of its own: only the users'."""
    if not _USER_NAME.match(name):
        raise invalid("PROPERTY_UNKNOWN", "put your own under user.", property=name[:128])


def integer_property(properties: Mapping[str, str], name: str) -> int:
    """The value in force; a stored one that doesn't fit counts as not set."""
    known = BY_NAME[name]
    value = properties.get(name, known.default)
    return int(value if known.accepts(value) else known.default)


def text_property(properties: Mapping[str, str], name: str) -> str:
    """Likewise."""
    known = BY_NAME[name]
    value = properties.get(name, known.default)
    return value if known.accepts(value) else known.default
