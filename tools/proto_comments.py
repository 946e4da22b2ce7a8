"""Finds the comment of every element of a parsed `.proto` file.

protoc numbers elements by their path through the descriptor: `(4, 0, 2, 1)` is the second field (2) of the first
message (4). The numbers are those of the fields in descriptor.proto.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

Path = tuple[int, ...]

FILE_MESSAGE = 4
FILE_ENUM = 5
FILE_SERVICE = 6
MESSAGE_FIELD = 2
MESSAGE_MESSAGE = 3
MESSAGE_ENUM = 4
ENUM_VALUE = 2
SERVICE_METHOD = 2


@dataclass(frozen=True, slots=True)
class Element:
    """Something that a reader meets by name. `line` counts from one."""

    kind: str
    name: str
    comment: str
    file: str
    line: int


def list_elements(file: FileDescriptorProto) -> list[Element]:
    """All of a file's elements, except the zero value of an enum where its name, `…_UNSPECIFIED`, says it all."""
    places = {tuple(location.path): location for location in file.source_code_info.location}
    elements = []
    for path, kind, name in _walk(file):
        location = places[path]
        comment = _text(location.leading_comments) or _text(location.trailing_comments)
        if not comment and name.endswith("_UNSPECIFIED"):
            comment = "Not set."
        elements.append(Element(kind, f"{file.package}.{name}", comment, file.name, location.span[0] + 1))
    return elements


def _walk(file: FileDescriptorProto) -> Iterator[tuple[Path, str, str]]:
    for number, service in enumerate(file.service):
        path = (FILE_SERVICE, number)
        yield path, "service", service.name
        for index, method in enumerate(service.method):
            yield (*path, SERVICE_METHOD, index), "RPC", f"{service.name}.{method.name}"
    for number, message in enumerate(file.message_type):
        yield from _walk_message(message, (FILE_MESSAGE, number), message.name)
    for number, enum in enumerate(file.enum_type):
        yield from _walk_enum(enum, (FILE_ENUM, number), enum.name)


def _walk_message(message: DescriptorProto, path: Path, name: str) -> Iterator[tuple[Path, str, str]]:
    if message.options.map_entry:
        return
    yield path, "message", name
    for index, field in enumerate(message.field):
        yield (*path, MESSAGE_FIELD, index), "field", f"{name}.{field.name}"
    for index, nested in enumerate(message.nested_type):
        yield from _walk_message(nested, (*path, MESSAGE_MESSAGE, index), f"{name}.{nested.name}")
    for index, enum in enumerate(message.enum_type):
        yield from _walk_enum(enum, (*path, MESSAGE_ENUM, index), f"{name}.{enum.name}")


def _walk_enum(enum: EnumDescriptorProto, path: Path, name: str) -> Iterator[tuple[Path, str, str]]:
    yield path, "enum", name
    for index, value in enumerate(enum.value):
        yield (*path, ENUM_VALUE, index), "enum value", f"{name}.{value.name}"


def _text(comment: str) -> str:
    """A comment without the space after its slashes, and without what it says to linters."""
    lines = [line.removeprefix(" ").rstrip() for line in comment.splitlines()]
    return "\n".join(line for line in lines if not line.startswith("buf:lint")).strip()
