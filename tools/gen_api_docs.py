"""Generates docs/api.md, the reference of the public wire, from the comments in the `.proto` files.

Every service, RPC, message, field, enum and enum value has a comment there, in storage records too: the command lists
those that have none and fails. `--check` compares instead of writing.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.api_docs import render
from tools.proto_comments import Element, list_elements
from tools.wire import PUBLIC, ROOT, descriptors, proto_files

TARGET = "docs/api.md"


def document(root: Path) -> str:
    """The reference, as it should stand in the file."""
    with tempfile.TemporaryDirectory() as scratch:
        return render(descriptors(root, proto_files(root, PUBLIC), Path(scratch)))


def list_uncommented(root: Path) -> list[Element]:
    """Everything in the tree's `.proto` files that a reader would meet without an explanation."""
    with tempfile.TemporaryDirectory() as scratch:
        files = descriptors(root, proto_files(root), Path(scratch))
    return [element for file in files for element in list_elements(file) if not element.comment]


def is_fresh(root: Path) -> bool:
    target = root / TARGET
    return target.is_file() and target.read_text(encoding="utf-8") == document(root)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the document is not fresh")
    check = parser.parse_args(arguments).check
    uncommented = list_uncommented(root)
    for element in uncommented:
        print(f"{element.file}:{element.line}: {element.kind} {element.name} has no comment", file=sys.stderr)
    if not check:
        (root / TARGET).write_text(document(root), encoding="utf-8")
    elif not is_fresh(root):
        print(f"{TARGET} is not what the .proto files say: run `make docs`", file=sys.stderr)
        return 1
    return 1 if uncommented else 0


if __name__ == "__main__":
    sys.exit(main())
