"""The properties of a table that mean something here, as data; everything else belongs under `user.`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metaservice.core.errors import invalid
from metaservice.core.types import did_you_mean

USER_PREFIX: Final = "user."
_USER_NAME = re.compile(r"user\.[A-Za-z0-9_.-]{1,250}\Z")
_INTEGER = re.compile(r"[0-9]{1,18}\Z")


@dataclass(frozen=True, slots=True)
class Property:
    """A known one. `binds_writers`: a change of it makes writers that began before it begin again."""

    name: str
    default: str
    doc: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    binds_writers: bool = False

    @property
    def type(self) -> str:
        """As documents show it."""
        return " | ".join(self.choices) if self.choices else f"integer, {self.low} to {self.high}"

    def accepts(self, value: str) -> bool:
        if self.choices:
            return value in self.choices
        return bool(_INTEGER.match(value)) and self.low <= int(value) <= self.high


PROPERTIES: Final = (
    Property(
        "data.retain.hours",
        "24",
        "How long old versions, and the table itself once dropped, can be brought back.",
        low=0,
        high=87_600,
    ),
    Property(
        "compaction.verify",
        "true",
        "Whether compactions take digests of what they read and wrote. Set to true, one without them is refused.",
        choices=("true", "false"),
    ),
    Property("compaction.enabled", "true", "Whether the planner may compact the table.", choices=("true", "false")),
    Property(
        "compaction.minor.files", "10", "Files in a bucket from which on a minor one is planned.", low=2, high=10_000
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


def check_user_property(name: str) -> None:
    """For what has no properties of its own: only the users'."""
    if not _USER_NAME.match(name):
        raise invalid("PROPERTY_UNKNOWN", "put your own under user.", property=name[:128])


def integer_property(properties: Mapping[str, str], name: str) -> int:
    """The value in force; a stored one that doesn't fit counts as not set."""
    known = BY_NAME[name]
    value = properties.get(name, known.default)
    return int(value if known.accepts(value) else known.default)
