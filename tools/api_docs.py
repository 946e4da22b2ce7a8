"""Renders parsed `.proto` files as one Markdown reference.

Services come first, each RPC with the tables of its request and its response; then, in alphabetical order, the messages
that several of them share, and the enums.
"""

import re
from collections.abc import Iterator, Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from tools.proto_comments import list_elements

HEADER = """\
<!-- Generated from the comments in protos/laketx/v1 by `make docs`: change them there. -->

# API reference

The wire of MetaService, package `laketx.v1`, over gRPC. A stream carries any number of messages. A field that was not
set reads as empty or zero; an `optional` one knows which. Of the fields marked *one of*, at most one is set.
"""


def render(files: Sequence[FileDescriptorProto]) -> str:
    return _Reference(files).text()


class _Reference:
    """One rendering. Full names are as protoc writes them, `.laketx.v1.Commit`; short ones are `Commit`."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._services = [service for file in files for service in file.service]
        self._messages: dict[str, DescriptorProto] = {}
        self._enums: dict[str, EnumDescriptorProto] = {}
        self._comments: dict[str, str] = {}
        self._prefixes = tuple({f".{file.package}." for file in files})
        for file in files:
            self._comments |= {self._short(f".{each.name}"): each.comment for each in list_elements(file)}
            self._enums |= {enum.name: enum for enum in file.enum_type}
            for message in file.message_type:
                self._add_message(message.name, message)
        self._own = self._messages_of_one_rpc()

    def text(self) -> str:
        shared = sorted(name for name in self._messages if name not in self._own and not self._is_map(name))
        parts = [HEADER, *self._contents()]
        for service in self._services:
            parts += self._service(service)
        if shared:
            parts.append("## Messages")
        for name in shared:
            parts += [f"### {name}", *self._body(name)]
        if self._enums:
            parts.append("## Enums")
        for name in sorted(self._enums):
            parts += [f"### {name}", *self._enum(name)]
        return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    def _contents(self) -> Iterator[str]:
        rows = [
            (f"[{service.name}](#{_anchor(service.name)})", ", ".join(self._rpc_links(service)))
            for service in self._services
        ]
        if rows:
            yield _table(("service", "RPCs"), rows)

    def _rpc_links(self, service: ServiceDescriptorProto) -> Iterator[str]:
        for method in service.method:
            yield f"[{method.name}](#{_anchor(f'{service.name}.{method.name}')})"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"## {service.name}"
        yield self._comments[service.name]
        for method in service.method:
            yield f"### {service.name}.{method.name}"
            yield self._comments[f"{service.name}.{method.name}"]
            yield from self._side("Request", method.input_type, stream=method.client_streaming)
            yield from self._side("Response", method.output_type, stream=method.server_streaming)

    def _side(self, side: str, full: str, *, stream: bool) -> Iterator[str]:
        name = self._short(full)
        stream_word = "stream of " if stream else ""
        if name not in self._own:
            yield f"**{side}**: {stream_word}{self._type_link(full)}"
            return
        yield f"**{side}**: {stream_word}`{name}`"
        yield from self._body(name)

    def _body(self, name: str) -> Iterator[str]:
        message = self._messages[name]
        yield self._comments[name]
        if not message.field:
            yield "It has no fields."
            return
        yield _table(("field", "type", "meaning"), [self._field(name, message, field) for field in message.field])

    def _field(self, name: str, message: DescriptorProto, field: FieldDescriptorProto) -> tuple[str, str, str]:
        meaning = _cell(self._comments[f"{name}.{field.name}"])
        if field.HasField("oneof_index") and not field.proto3_optional:
            meaning = f"*One of `{message.oneof_decl[field.oneof_index].name}`.* {meaning}"
        if field.options.deprecated:
            meaning = f"*Deprecated.* {meaning}"
        return f"`{field.name}`", self._type(field), meaning

    def _enum(self, name: str) -> Iterator[str]:
        yield self._comments[name]
        values = self._enums[name].value
        yield _table(
            ("value", "number", "meaning"),
            [(f"`{v.name}`", str(v.number), _cell(self._comments[f"{name}.{v.name}"])) for v in values],
        )

    def _type(self, field: FieldDescriptorProto) -> str:
        if field.type_name and self._is_map(self._short(field.type_name)):
            key, value = self._messages[self._short(field.type_name)].field
            return f"map of {self._type(key)} to {self._type(value)}"
        words = [self._type_link(field.type_name) if field.type_name else f"`{_scalar(field)}`"]
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            words.insert(0, "repeated")
        elif field.proto3_optional:
            words.insert(0, "optional")
        return " ".join(words)

    def _type_link(self, full: str) -> str:
        name = self._short(full)
        if name not in self._enums and name not in self._messages:
            return f"`{name}`"
        return f"[{name}](#{_anchor(self._own.get(name, name))})"

    def _add_message(self, name: str, message: DescriptorProto) -> None:
        self._messages[name] = message
        self._enums |= {f"{name}.{enum.name}": enum for enum in message.enum_type}
        for nested in message.nested_type:
            self._add_message(f"{name}.{nested.name}", nested)

    def _messages_of_one_rpc(self) -> dict[str, str]:
        """Requests and responses that one RPC has to itself, with its heading: their tables stand there.

        A noun that an RPC returns as it is has a section of its own where fields refer to it, too.
        """
        rpcs: dict[str, set[str]] = {}
        for service in self._services:
            for method in service.method:
                for full in (method.input_type, method.output_type):
                    rpcs.setdefault(self._short(full), set()).add(f"{service.name}.{method.name}")
        in_fields = {self._short(field.type_name) for message in self._messages.values() for field in message.field}
        return {
            name: next(iter(headings))
            for name, headings in rpcs.items()
            if len(headings) == 1
            and name in self._messages
            and (name not in in_fields or name.endswith(("Request", "Response")))
        }

    def _is_map(self, name: str) -> bool:
        return name in self._messages and self._messages[name].options.map_entry

    def _short(self, full: str) -> str:
        for prefix in self._prefixes:
            if full.startswith(prefix):
                return full.removeprefix(prefix)
        return full.removeprefix(".")


def _scalar(field: FieldDescriptorProto) -> str:
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.lower())


def _cell(text: str) -> str:
    """Text as one table cell: paragraphs and list items keep their breaks, wrapped lines don't."""
    breaks = re.sub(r"\n\s*\n|\n(?=\s*[-*] )", "<br>", text)
    return re.sub(r"\s*\n\s*", " ", breaks).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
