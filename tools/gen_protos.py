"""Generates the Python beside the `.proto` files: messages, their types, and stubs where a file has services.

The result is committed. `--check` generates into a scratch folder and compares, byte for byte.
"""

import argparse
import filecmp
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tools.wire import ROOT, plugin, proto_files, run_protoc

GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(root: Path, into: Path) -> None:
    """Writes below `into`, which need not be the root."""
    files = proto_files(root)
    run_protoc(root, files, plugin("mypy"), f"--python_out={into}", f"--mypy_out=quiet:{into}")
    with_services = [name for name in files if _has_services(root / name)]
    if with_services:
        run_protoc(
            root,
            with_services,
            plugin("mypy_grpc"),
            f"--grpc_python_out={into}",
            f"--mypy_grpc_out=quiet,sync_only:{into}",
        )


def update(root: Path) -> None:
    """Makes the tree's generated files exactly what the `.proto` files say: leftovers go."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(root, fresh)
        wanted = generated_files(fresh)
        for name in generated_files(root) - wanted:
            (root / name).unlink()
        for name in wanted:
            shutil.copyfile(fresh / name, root / name)


def list_stale(root: Path) -> list[str]:
    """Generated files that are missing, left over, or not what the `.proto` files say."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(root, fresh)
        wanted, present = generated_files(fresh), generated_files(root)
        changed = {name for name in wanted & present if not filecmp.cmp(fresh / name, root / name, shallow=False)}
        return sorted((wanted ^ present) | changed)


def generated_files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for glob in GENERATED for path in (root / "protos").rglob(glob)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not fresh")
    if not parser.parse_args().check:
        update(ROOT)
        return 0
    stale = list_stale(ROOT)
    for name in stale:
        print(f"{name} is not what its .proto file says: run `make protos`", file=sys.stderr)
    return 1 if stale else 0


def _has_services(path: Path) -> bool:
    return re.search(r"^service\s", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


if __name__ == "__main__":
    sys.exit(main())
