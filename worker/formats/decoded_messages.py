"""Messages whose bytes a schema describes, after they were read; or why they could not be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.formats.meanings import Meaning


@dataclass(frozen=True)
class Decoded:
    """The fields of a message in the form of JSON's documents, and what its schema says of them."""

    fields: dict[str, Any]
    meanings: Mapping[str, Meaning] = field(default_factory=dict)


@dataclass(frozen=True)
class Undecodable:
    """A message that can't be read."""

    error: InputError


def described_columns(messages: Iterable[Any], meta: catalog_pb2.Table) -> pa.Schema:
    """The fields of the messages that the table lacks, as their schemas describe them."""
    own = {column.name.lower() for column in meta.columns}
    schemas = {id(message.meanings): message.meanings for message in messages if isinstance(message, Decoded)}
    columns: dict[str, pa.Field] = {}
    for meanings in schemas.values():
        for name, meaning in meanings.items():
            if meaning.kind is not None and name.lower() not in own:
                columns.setdefault(name.lower(), pa.field(name, meaning.kind))
    return pa.schema(list(columns.values()))
