"""Properties of tables that Iceberg's clients set, kept below `user.iceberg.`; LakeTX's own are LakeTX's to set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from iceberg.commits.requests import refused

PREFIX: Final = "user.iceberg."
COMMENT: Final = "comment"
FORMAT_OF_FILES: Final = "write.format.default"
OURS: Final = frozenset(  # what a loadTable says itself
    {
        COMMENT,
        "format-version",
        "write.data.path",
        "write.metadata.path",
        "write.folder-storage.path",
        "write.object-storage.path",
        "commit.manifest-merge.enabled",
        "schema.name-mapping.default",
    }
)


def kept_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The properties as the table keeps them."""
    form = given.get(FORMAT_OF_FILES, "parquet")
    if form.lower() != "parquet":
        raise refused(f"{FORMAT_OF_FILES} is {form}: tables here have Parquet")
    return {f"{PREFIX}{name}": value for name, value in given.items() if name not in OURS}


def kept_names(names: Iterable[str]) -> list[str]:
    return [f"{PREFIX}{name}" for name in names if name not in OURS]


def shown_properties(kept: Mapping[str, str]) -> dict[str, str]:
    """The kept ones, as clients set them."""
    found = {name.removeprefix(PREFIX): value for name, value in kept.items() if name.startswith(PREFIX)}
    return {name: value for name, value in found.items() if name not in OURS}
