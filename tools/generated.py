"""What generators of documents share: write what is generated, or with `--check` compare it with what is there."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def wants_check(arguments: Sequence[str] | None, description: str | None) -> bool:
    """Reads the command line: generators have one option."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a document is not fresh")
    return bool(parser.parse_args(arguments).check)


def write_or_check(documents: Mapping[str, str], root: Path, *, check: bool) -> int:
    """Texts by path below the root. The exit code: 1 where one is stale."""
    stale = [name for name, text in documents.items() if not _holds(root / name, text)]
    for name in stale:
        if check:
            print(f"{name} is not what it is generated from: run `make docs`", file=sys.stderr)
        else:
            (root / name).write_text(documents[name], encoding="utf-8")
    return int(check and bool(stale))


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
