"""What releases know that earlier ones did not: client and service tell each other, and refuse what one can't do.

An older service leaves out what it doesn't know of a request, and an older client what it doesn't know of an answer. A
value that must not be lost in this way has a name here.
"""

from __future__ import annotations

from typing import Final

from metaservice.client.errors import BlockedError, ErrorKind, build_error

INLINED_ROWS: Final = "inlined_rows"
COLUMN_DEFAULTS: Final = "column_defaults"
VIEWS: Final = "views"
VERSION_CONDITIONS: Final = "version_conditions"
BRANCHES: Final = "branches"
FORKS: Final = "forks"  # their files lie in the folder of another table
KEY_LOOKUPS: Final = "key_lookups"  # each write that looked its keys up in all partitions says so itself
PARTIAL_IMAGES: Final = "partial_images"  # they set single columns, and readers fold them
READ: Final = (INLINED_ROWS, VERSION_CONDITIONS, FORKS, PARTIAL_IMAGES)  # what this client's readers know
TABLE_FEATURES: Final = ("delete_sets", "row_ids")
WRITTEN: Final = (COLUMN_DEFAULTS, FORKS, PARTIAL_IMAGES, *TABLE_FEATURES)  # what its writers know
METADATA: Final = (("x-laketx-features", ",".join(READ)),)


def not_offered(feature: str) -> BlockedError:
    message = f"the service doesn't offer {feature}: it is of an earlier release, or keeps its store's format"
    error = build_error(ErrorKind.BLOCKED, "FEATURE_NOT_OFFERED", message, {"lacks": feature})
    assert isinstance(error, BlockedError)
    return error


def keys_not_looked_up(table: str) -> BlockedError:
    cause = f"the key of {table} is unique across partitions, and this write by Spark looks none up"
    message = f"{cause}: have a MERGE that inserts be ON the whole key alone, or write without Spark"
    error = build_error(ErrorKind.BLOCKED, "KEYS_NOT_LOOKED_UP", message, {"table": table})
    assert isinstance(error, BlockedError)
    return error
