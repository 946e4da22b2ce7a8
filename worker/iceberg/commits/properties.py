"""Properties of tables that Iceberg's clients set, kept below `user.iceberg.`; clients can't set LakeTX's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from metaservice.shared.column_lists import parse_column_list
from metaservice.shared.column_types import BLOOM_COLUMNS
from worker.iceberg.commits.requests import FORMAT_MIN, refused

PREFIX: Final = "user.iceberg."
APPEND_REBASE: Final = "iceberg.append_rebase"
NO_RETRIES: Final = "0"
RETRIES: Final = "commit.retry.num-retries"
OWN: Final = frozenset({APPEND_REBASE})  # LakeTX's, under the same name
COMMENT: Final = "comment"
FORMAT_VERSION: Final = "format-version"
BLOOM_FILTER: Final = "write.parquet.bloom-filter-enabled.column."
FORMAT_OF_FILES: Final = "write.format.default"
OURS: Final = frozenset(  # what a loadTable says itself
    {
        COMMENT,
        FORMAT_VERSION,
        "write.data.path",
        "write.metadata.path",
        "write.folder-storage.path",
        "write.object-storage.path",
        "commit.manifest-merge.enabled",
        "schema.name-mapping.default",
    }
)


def check_format(given: Mapping[str, str], form: int) -> None:
    """Refuse an unknown version of Iceberg's format, and a newer one than the tables are shown in.

    An older version is accepted: DuckDB requests it always. Another warehouse shows the table in it.
    """
    requested = given.get(FORMAT_VERSION, str(form))
    if requested not in map(str, range(FORMAT_MIN, form + 1)):
        raise refused(
            f"{FORMAT_VERSION} is {requested}, and this warehouse shows tables in format {form}: leave it out, or use "
            f"the warehouse v{requested if requested in ('2', '3') else form}, which shows the same tables in its "
            "format"
        )


def kept_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties under the names that the table keeps them under."""
    form = given.get(FORMAT_OF_FILES, "parquet")
    if form.lower() != "parquet":
        raise refused(f"{FORMAT_OF_FILES} is {form}: tables here have Parquet")
    return {_kept(name): value for name, value in given.items() if name not in OURS}


def kept_names(names: Iterable[str]) -> list[str]:
    return [_kept(name) for name in names if name not in OURS]


def _kept(name: str) -> str:
    return name if name in OWN else f"{PREFIX}{name}"


def rebases_appends(kept: Mapping[str, str]) -> bool:
    """Return whether appends are accepted although rows changed since the snapshot that they require."""
    return kept.get(APPEND_REBASE) == "true"


def repeats_appends(kept: Mapping[str, str]) -> bool:
    """Return whether an append may be retried although rows changed since its client loaded the table."""
    return kept.get(f"{PREFIX}{RETRIES}", NO_RETRIES) != NO_RETRIES


def shown_properties(kept: Mapping[str, str]) -> dict[str, str]:
    """Return the kept properties as clients set them, and the columns for which writers make Bloom filters."""
    shown = {name.removeprefix(PREFIX): kept[name] for name in kept if name.startswith(PREFIX) or name in OWN}
    filtered = {f"{BLOOM_FILTER}{name}": "true" for name in parse_column_list(kept.get(BLOOM_COLUMNS, ""))}
    return filtered | {name: value for name, value in shown.items() if name not in OURS}
