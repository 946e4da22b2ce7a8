"""Properties of tables that Iceberg's clients set, kept below `user.iceberg.`; LakeTX's own are LakeTX's to set."""

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
    """Refuses a newer version of Iceberg's format than the one that tables are shown in, or none that there is.

    An older one is what DuckDB asks for whatever the catalog has; the table is shown in it by another warehouse.
    """
    asked = given.get(FORMAT_VERSION, str(form))
    if asked not in map(str, range(FORMAT_MIN, form + 1)):
        raise refused(
            f"{FORMAT_VERSION} is {asked}, and this warehouse shows tables in format {form}: leave it out, or use the "
            f"warehouse v{asked if asked in ('2', '3') else form}, which shows the same tables in its format"
        )


def kept_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The properties as the table keeps them."""
    form = given.get(FORMAT_OF_FILES, "parquet")
    if form.lower() != "parquet":
        raise refused(f"{FORMAT_OF_FILES} is {form}: tables here have Parquet")
    return {_kept(name): value for name, value in given.items() if name not in OURS}


def kept_names(names: Iterable[str]) -> list[str]:
    return [_kept(name) for name in names if name not in OURS]


def _kept(name: str) -> str:
    return name if name in OWN else f"{PREFIX}{name}"


def rebases_appends(kept: Mapping[str, str]) -> bool:
    """Whether appends are taken although rows changed since the snapshot that they require."""
    return kept.get(APPEND_REBASE) == "true"


def repeats_appends(kept: Mapping[str, str]) -> bool:
    """Whether an append may be tried again although rows changed since its client loaded the table."""
    return kept.get(f"{PREFIX}{RETRIES}", NO_RETRIES) != NO_RETRIES


def shown_properties(kept: Mapping[str, str]) -> dict[str, str]:
    """The kept ones, as clients set them, and the columns for which Iceberg's writers make Bloom filters."""
    found = {name.removeprefix(PREFIX): kept[name] for name in kept if name.startswith(PREFIX) or name in OWN}
    filtered = {f"{BLOOM_FILTER}{name}": "true" for name in parse_column_list(kept.get(BLOOM_COLUMNS, ""))}
    return filtered | {name: value for name, value in found.items() if name not in OURS}
