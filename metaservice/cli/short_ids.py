"""Ids in few characters, for terminals: the shortest beginning that tells those of a list apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from metaservice.cli.failures import CommandError, Exit

ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BEGINNING: Final = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
SHORTEST: Final = 13  # the milliseconds of a UUIDv7


def cutter(texts: Sequence[str]) -> Callable[[str], str]:
    """What makes each id of the list as short as they all can be; it leaves texts that are no ids alone."""
    ids = {text for text in texts if ID.fullmatch(text)}
    whole = len(next(iter(ids), ""))
    length = next((n for n in range(SHORTEST, whole) if len({one[:n] for one in ids}) == len(ids)), whole)
    return lambda text: text[:length] if ID.fullmatch(text) else text


def whole_id(text: str, newest_first: Iterable[str], what: str) -> str:
    """The one id that begins so; ids are looked through until they are older than any that could."""
    if ID.fullmatch(text) or not BEGINNING.fullmatch(text):
        return text
    found = []
    for one in newest_first:
        if one.startswith(text):
            found.append(one)
        elif one < text:
            break
    if len(found) > 1:
        facts = {what: text, "first": found[0], "second": found[1]}
        raise CommandError(Exit.USAGE, "ID_AMBIGUOUS", f"more than one {what} begins so", facts, "give more of the id")
    return found[0] if found else text
