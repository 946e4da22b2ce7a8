"""Messages in the form of schema registries: a zero byte, the schema's id in four bytes, and the bytes of the message.

00 | 00 00 00 07 | a record of Avro
00 | 00 00 00 09 | 02 00 | a message of Protobuf, after the place of its type in the file
00 | 00 00 00 0b | {"id": 1}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from cachetools import LRUCache

from laketx.commands.message_batches import Content, Parsed
from worker.base.errors import InputError
from worker.formats.avro_messages import message_reader, read_message
from worker.formats.avro_readers import AvroError
from worker.formats.decoded_messages import Decoded, Undecodable
from worker.formats.json_messages import Message
from worker.formats.proto_files import ProtoError
from worker.formats.proto_messages import ProtoReader
from worker.formats.schema_registry import OF_SCHEMAS, RegisteredSchema, SchemaRegistry

HEADER_BYTES: Final = 5
SCHEMAS_KEPT: Final = 1_000
UNKNOWN_S: Final = 10.0  # after that time an unknown schema is asked for again
KINDS: Final = {"avro": ("AVRO",), "protobuf": ("PROTOBUF",), "json": ("JSON",), "debezium": ("AVRO", "JSON")}

Decode: TypeAlias = Callable[[bytes], Message]  # a message with its header


class DecodedContent(NamedTuple):
    """The key and the value of a message, as their schemas read them."""

    key: Message
    value: Message


@dataclass(frozen=True)
class _Unusable:
    """What is known of a schema that can't be used, and until when."""

    error: InputError
    until_s: float


class SchemaDecoder:
    """Reads messages by their schemas. A message that can't be read is Undecodable; none ends the process."""

    def __init__(self, registry: SchemaRegistry, form: str, now_s: Callable[[], float]) -> None:
        self._registry = registry
        self._kinds = KINDS[form]
        self._now_s = now_s
        self._decoders: LRUCache[int, Decode | _Unusable] = LRUCache(SCHEMAS_KEPT)

    def decode(self, contents: Sequence[Content]) -> Sequence[Parsed]:
        """Raises RegistryAwayError: call it again. What has been learned by then is kept."""
        return [
            DecodedContent(self._key(content.key) if not content.value else None, self._message(content.value))
            for content in contents
        ]

    def _key(self, raw: bytes | None) -> Message:
        """A key without the form of the registry is JSON."""
        return self._message(raw) if raw and not raw[0] else raw

    def _message(self, raw: bytes | None) -> Message:
        if not raw:
            return None
        if raw[0] or len(raw) < HEADER_BYTES:
            return Undecodable(InputError("MESSAGE_INVALID", "it doesn't begin with a zero byte and a schema's id"))
        schema_id = int.from_bytes(raw[1:HEADER_BYTES], "big")
        decode = self._decoders.get(schema_id)
        if decode is None or (isinstance(decode, _Unusable) and decode.until_s < self._now_s()):
            decode = self._decoders[schema_id] = self._learn(schema_id)
        if isinstance(decode, _Unusable):
            return Undecodable(decode.error)
        return decode(raw)

    def _learn(self, schema_id: int) -> Decode | _Unusable:
        try:
            schema = self._registry.fetch(schema_id)
            if schema.kind not in self._kinds:
                text = f"it is a schema of {schema.kind}, not of {' or '.join(self._kinds)}"
                raise InputError("SCHEMA_INVALID", text)
            return _decode_of(schema, schema_id)
        except InputError as error:
            if error.reason not in OF_SCHEMAS:
                raise
            text = str(error).removeprefix(f"{error.reason}: ")
            return _Unusable(InputError(error.reason, f"schema {schema_id}: {text}"), self._now_s() + UNKNOWN_S)


def _decode_of(schema: RegisteredSchema, schema_id: int) -> Decode:
    match schema.kind:
        case "AVRO":
            return _avro(schema, schema_id)
        case "PROTOBUF":
            return _protobuf(schema, schema_id)
        case "JSON":
            return _without_header
        case _:
            pass
    raise InputError("SCHEMA_INVALID", f"schemas of {schema.kind} are not supported")


def _without_header(raw: bytes) -> bytes:
    return raw[HEADER_BYTES:]


def _avro(schema: RegisteredSchema, schema_id: int) -> Decode:
    try:
        read, meaning = message_reader(schema.text, [text for _, text in schema.references])
    except AvroError as error:
        raise InputError("SCHEMA_INVALID", str(error)) from error

    def decode(raw: bytes) -> Message:
        try:
            return Decoded(read_message(read, raw, HEADER_BYTES), meaning.fields)
        except AvroError as error:
            return Undecodable(InputError("MESSAGE_INVALID", f"{error} (schema {schema_id})"))

    return decode


def _protobuf(schema: RegisteredSchema, schema_id: int) -> Decode:
    try:
        reader = ProtoReader(schema.text, schema.references)
    except ProtoError as error:
        raise InputError("SCHEMA_INVALID", str(error)) from error

    def decode(raw: bytes) -> Message:
        try:
            fields, meaning = reader.read(raw, HEADER_BYTES)
        except ProtoError as error:
            return Undecodable(InputError("MESSAGE_INVALID", f"{error} (schema {schema_id})"))
        return Decoded(fields, meaning.fields)

    return decode
