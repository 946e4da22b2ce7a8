"""Documents point at things that exist: files, headings, commands. The Makefile explains each of its commands."""

import re
from functools import cache
from itertools import chain, count
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.house.tree import ROOT, list_files, name_of

DOCUMENTS = list_files(".md")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE)
FENCE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
MAKE = re.compile(r"(?:^|`|\$ |&& |; )make (?P<target>[a-z][a-z-]*)(?=[\s`;]|$)", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    assert [link for link in relative_links(document) if not leads_somewhere(document, link)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_commands_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    code = "\n".join(match.group() for pattern in (FENCE, CODE_SPAN) for match in pattern.finditer(text))
    named = {match["target"] for match in MAKE.finditer(code)}
    assert named <= set(TARGETS)


def test_the_makefile_has_targets() -> None:
    assert {"setup", "check", "test"} <= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_make_explains_its_targets(target: str) -> None:
    assert re.search(rf"^{target}:.*## \S", MAKEFILE, re.MULTILINE), "a target says what it does after `## `"
    assert re.search(rf"^\.PHONY: {target}$", MAKEFILE, re.MULTILINE), "a target that names no file is phony"


def relative_links(document: Path) -> list[str]:
    text = CODE_SPAN.sub("", FENCE.sub("", document.read_text(encoding="utf-8")))
    links = [match["target"] or match["image"] for match in LINK.finditer(text)]
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def leads_somewhere(document: Path, link: str) -> bool:
    path, _, fragment = unquote(link).partition("#")
    target = document if not path else document.parent / path
    if not target.exists():
        return False
    return not fragment or target.suffix != ".md" or fragment in anchors(target)


@cache
def anchors(document: Path) -> set[str]:
    """The anchors that a heading gets, by GitHub's rule; a repeated heading is numbered."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE):
        base = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        repeats = (f"{base}-{number}" for number in count(1))
        found.add(next(anchor for anchor in chain([base], repeats) if anchor not in found))
    return found
