"""Who keeps old versions, so that their files are not purged."""

from __future__ import annotations

from collections.abc import Iterator

from metaservice.client import MetaClient


def held_versions(client: MetaClient, table_id: str = "") -> Iterator[str]:
    """A sentence for each pin, tag and cursor at a version that is not the newest."""
    heads = {one.table_id: (one.name, one.head_version) for one in client.list_tables()}
    held = [(one.table_id, one.version, f"a pin of {one.principal.name} keeps") for one in client.list_pins()]
    held += [(one.table_id, one.version, f"the tag {one.name} keeps") for one in client.list_tags()]
    cursors = (one for one in client.list_cursors() if not one.expired)
    held += [(one.table_id, one.version, f"the cursor {one.name} keeps what comes after") for one in cursors]
    for of_table, version, keeps in held:
        name, head = heads.get(of_table, ("", 0))
        if version < head and table_id in ("", of_table):
            yield f"{keeps} version {version} of {name}"
