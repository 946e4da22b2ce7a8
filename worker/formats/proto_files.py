"""Files of Protobuf that others wrote, compiled by protoc in a process of its own, within a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

import grpc_tools  # noqa: F401 - it is started below; where it is missing the command says so at its start
from google.protobuf import descriptor_pb2

COMPILE_S: Final = 60.0
ERROR_CHARS_MAX: Final = 300
MAIN: Final = "laketx_main.proto"
SYNTAX: Final = 'syntax = "proto3";\n'
COMMON: Final[Mapping[str, str]] = {  # registries have these without being asked
    "confluent/meta.proto": SYNTAX
    + 'package confluent;\nimport "google/protobuf/descriptor.proto";\n'
    + "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }\n"
    + "".join(
        f"extend google.protobuf.{kind}Options {{ Meta {name}_meta = 1088; }}\n"
        for kind, name in (
            ("File", "file"),
            ("Message", "message"),
            ("Field", "field"),
            ("Enum", "enum"),
            ("EnumValue", "enum_value"),
        )
    ),
    "confluent/type/decimal.proto": SYNTAX
    + "package confluent.type;\nmessage Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }\n",
    "google/type/date.proto": SYNTAX
    + "package google.type;\nmessage Date { int32 year = 1; int32 month = 2; int32 day = 3; }\n",
    "google/type/timeofday.proto": SYNTAX
    + "package google.type;\n"
    + "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }\n",
}


class ProtoError(ValueError):
    """What is wrong with a file or a message of Protobuf."""


def compile_proto(text: str, references: Sequence[tuple[str, str]]) -> descriptor_pb2.FileDescriptorSet:
    """The descriptors of a file and of those that it imports; its own comes last. Raises ProtoError."""
    with TemporaryDirectory(prefix="laketx-proto-") as folder:
        for name, content in {**COMMON, **dict(references), MAIN: text}.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
                raise ProtoError(f"it imports {name!r}, which is no name of a file")
            try:
                place = Path(folder) / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content, encoding="utf-8")
            except (OSError, UnicodeEncodeError) as error:
                raise ProtoError(f"it imports {name!r}, which is no name of a file") from error
        return _compiled(folder)


def _compiled(folder: str) -> descriptor_pb2.FileDescriptorSet:
    made = Path(folder) / "descriptors.bin"
    options = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={made}", MAIN]
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", *options]  # no module comes from a foreign folder
    try:
        done = subprocess.run(  # noqa: S603 - options of ours, and a folder of ours
            command, capture_output=True, text=True, errors="replace", timeout=COMPILE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProtoError(f"it takes longer than {COMPILE_S:.0f} seconds to compile") from error
    if done.returncode:
        raise ProtoError(f"protoc refuses it: {done.stderr.strip().replace(folder, '')[:ERROR_CHARS_MAX]}")
    return descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
