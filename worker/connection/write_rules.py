"""What the profile of a table asks of a write, as the service says it."""

from __future__ import annotations

from typing import Final

from protos.laketx.v1 import catalog_pb2

UNSAID: Final = catalog_pb2.WriteRules(counts_reads=True, counts_key_lookups=True, takes_custom=True)


def write_rules(meta: catalog_pb2.Table) -> catalog_pb2.WriteRules:
    """The table's rules. A service of the release before says none: then what is right under every profile."""
    return meta.rules if meta.HasField("rules") else UNSAID
