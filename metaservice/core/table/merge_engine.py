"""What a new image of a row replaces: the whole row, or the columns that it sets.

    merge.engine=whole        id 7: a=1 b=1, then an image a=2 b=NULL        a=2 b=NULL
    merge.engine=partial      id 7: a=1 b=1, then an image that sets a=2     a=2 b=1

Readers fold the images of a key in the order of their commits. So a new row of a key must not be in another partition
than the images before: a key that spans partitions has no partial updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaservice.core.errors import invalid
from metaservice.core.table.key_scope import spans_partitions
from metaservice.core.table.properties import MERGE_ENGINE, PARTIAL, WHOLE
from metaservice.core.table.view_definition import is_view


def merge_engine(properties: Mapping[str, str]) -> str:
    """The engine of a table."""
    return properties.get(MERGE_ENGINE, WHOLE)


def check_merge_engine(
    primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Checks the engine of a new table."""
    if MERGE_ENGINE not in properties:
        return
    if not primary_key:
        why = f"only rows with a primary key have images: leave {MERGE_ENGINE} out, or give a key"
    elif merge_engine(properties) != PARTIAL:
        return
    elif spans_partitions(primary_key, partition_columns, properties):
        why = "an image that moves its row to another partition has to be whole: add the partition columns to the key"
    elif is_view(properties):
        why = f"a refresh writes whole rows: leave {MERGE_ENGINE} out"
    else:
        return
    raise invalid("MERGE_ENGINE_NOT_ALLOWED", why, merge_engine=merge_engine(properties))
