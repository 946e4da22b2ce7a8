"""The command line of every benchmark: its docstring is its help, and words choose among its parts."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

NO_PEERS: Final = "no-peers"


def chosen(about: str | None, known: Iterable[str] = (), words: Sequence[str] | None = None) -> list[str]:
    """The words of a command line, each of which is known; empty: nothing is chosen. `--help` shows the docstring."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = list(known)
    if listed:
        parser.add_argument("words", nargs="*", metavar="WORD", help=", ".join(listed))
    found: list[str] = getattr(parser.parse_args(words), "words", [])
    if unknown := [one for one in found if one not in listed]:
        parser.error(f"{', '.join(unknown)}: the words are {', '.join(listed)}")
    return found
