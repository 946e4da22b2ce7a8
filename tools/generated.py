"""What generators of documents share: write what is generated, or with `--check` compare it with what is there.

In a document, what stands between two markers is generated:

    <!-- generated: NAME -->
    …
    <!-- end -->
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

BLOCK = re.compile(r"(?<=<!-- generated: )(?P<name>[a-z-]+)(?P<head> -->\n).*?(?=<!-- end -->)", re.DOTALL)


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


def fill(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """A document with its blocks made anew. An unknown name is a KeyError."""
    return BLOCK.sub(lambda block: f"{block['name']}{block['head']}\n{blocks[block['name']]()}\n\n", text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
