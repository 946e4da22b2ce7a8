"""Tables that are registered by a metadata file: dropped ones come back so. No file that a client names is opened."""

from __future__ import annotations

import re
from typing import Final

from metaservice.client import GoneError, NotFoundError
from worker.iceberg.commits.requests import refused
from worker.iceberg.locations import location_of, uri_of
from worker.iceberg.metadata.facts import METADATA, sequence_of
from worker.iceberg.rest.catalog import Catalog
from worker.iceberg.rest.problems import NO_TABLE, RestError, taken
from worker.iceberg.rest.writes import Writes
from worker.services.generated_files import FOLDER

PLACE: Final = rf"/([0-9a-f-]{{36}})/{FOLDER}/{METADATA}/([0-9]+)-[0-9a-f]+\.metadata\.json"  # id, sequence number
ELSEWHERE: Final = (
    "a table is registered here by the metadata that this catalog showed last of it before it was dropped: "
    "`laketx import iceberg` takes in other tables with their files"
)


def register(catalog: Catalog, namespace: str, name: str, place: str) -> None:
    """Brings back the dropped table whose metadata this is, under the name that it had."""
    client, whole = catalog.lake.client, Writes(catalog).free_name(namespace, name)
    for thing, look_up in (("Table", client.get_table), ("View", client.get_view)):
        try:
            look_up(whole)
        except NotFoundError:
            continue
        raise taken(thing, f"{namespace}.{name}", NO_TABLE)
    found = re.fullmatch(re.escape(location_of(catalog.lake.warehouse)) + PLACE, uri_of(place))
    if found is None:
        raise refused(ELSEWHERE)
    table_id, sequence = found[1], int(found[2])
    dropped = next((one for one in client.find_dropped_tables(whole) if one.table_id == table_id), None)
    if dropped is None:
        raise refused(f"no table that was dropped as {whole} has that metadata; a table comes back under its own name")
    if sequence != sequence_of(dropped.head_version):
        raise refused(
            f"{whole} was changed after the snapshot {sequence}: register its last metadata, or bring it back with "
            "`laketx table undrop` and restore that version"
        )
    try:
        client.undrop_table(table_id)
    except (GoneError, NotFoundError) as error:
        raise RestError(400, "BadRequestException", f"{whole} can't come back: {error}") from error
