"""Avro files of blocks that may be anything."""

from __future__ import annotations

import json
from typing import Any, Final

from worker.iceberg.metadata.avro_bytes import sized, whole

SYNC: Final = b"s" * 16


def avro(schema: Any, *blocks: tuple[int, bytes], codec: str = "null") -> bytes:
    """A file of blocks that may be anything."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    facts = [("avro.schema", text), ("avro.codec", codec.encode())]
    head = whole(len(facts)) + b"".join(sized(name.encode()) + sized(value) for name, value in facts) + b"\0"
    return b"Obj\1" + head + SYNC + b"".join(whole(count) + sized(block) + SYNC for count, block in blocks)


def record(*fields: Any, name: str = "r") -> dict[str, Any]:
    listed = [{"name": f"f{at}", "type": one} for at, one in enumerate(fields)]
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": "long"}, *listed]}


RECURSIVE = record({"type": "record", "name": "x", "fields": [{"name": "n", "type": ["null", "x"]}]})
NULLS = record({"type": "array", "items": "null"})
