"""Runs protoc over the project's `.proto` files. Owns where they are and how imports in them resolve.

Paths given to protoc are relative to the root, so that generated modules import each other as `protos.laketx.…`.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc_tools
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = "protos/laketx/v1"
STORAGE = "protos/laketx/storage/v1"


class ProtocError(Exception):
    """protoc refused the files; it has said why on standard error."""


def proto_files(root: Path, folder: str = "protos") -> list[str]:
    """The `.proto` files below a folder, as protoc wants them: relative to the root, in a stable order."""
    return sorted(path.relative_to(root).as_posix() for path in (root / folder).rglob("*.proto"))


def run_protoc(root: Path, files: Sequence[str], *options: str) -> None:
    includes = [root, *_third_party_includes()]
    code = protoc.main(["protoc", *(f"-I{path}" for path in includes), *options, *files])
    if code != 0:
        raise ProtocError(f"protoc ended with {code}")


def plugin(name: str) -> str:
    """The option that names a protoc plugin of this environment, found without PATH."""
    return f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"


def descriptors(root: Path, files: Sequence[str], scratch: Path) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files parsed, with their comments (`source_code_info`)."""
    target = scratch / "descriptors.binpb"
    run_protoc(root, files, "--include_source_info", f"--descriptor_set_out={target}")
    return list(descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file)


def _third_party_includes() -> list[Path]:
    """Where `google/protobuf/*.proto` and `google/rpc/*.proto` lie."""
    google_rpc = importlib.util.find_spec("google.rpc")
    assert google_rpc is not None, "googleapis-common-protos comes with grpcio-status"
    assert google_rpc.submodule_search_locations, "google.rpc is a package"
    return [
        Path(grpc_tools.__file__).parent / "_proto",
        Path(next(iter(google_rpc.submodule_search_locations))).parent.parent,
    ]
