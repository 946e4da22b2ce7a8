"""Names of variables, parameters, attributes, functions and classes: no empty words, and a word of the glossary names
one class.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.house.tree import ROOT, list_files, name_of

EMPTY = frozenset({"one", "found", "said", "wanted", "asked", "told", "there", "mine", "here", "known"})
PACKAGES = ("laketx/", "metaservice/", "worker/")
NAMED_TWICE = {"Branch", "Cursor", "Entry", "Session"}  # it only shrinks
GLOSSARY = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


@dataclass(frozen=True)
class Names:
    """What a file names: the empty words with their lines, and its classes."""

    empty: list[str]
    classes: list[str]


@cache
def names_of_files() -> dict[str, Names]:
    """Each file of the packages is parsed once for all rules, and its tree forgotten."""
    paths = [path for path in list_files(".py") if name_of(path).startswith(PACKAGES)]
    return {name_of(path): names_in(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}


def names_in(tree: ast.AST) -> Names:
    bound = [pair for node in ast.walk(tree) for pair in bound_names(node)]
    empty = [f"{name} in line {line}" for name, line in bound if name.strip("_").lower() in EMPTY]
    return Names(empty, [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)])


def bound_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the name that a node binds, with its line: a use of it doesn't count again."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name, node.lineno
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, node.lineno
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name, node.lineno
        case ast.alias(asname=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name, node.lineno
        case _:
            pass


def test_an_empty_word_names_nothing() -> None:
    empty = {name: names.empty for name, names in names_of_files().items() if names.empty}
    assert empty == {}, "name what the value is: file, column, missing, expected"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def told(one, *, known): ...", 3),
        ("self.found = [mine for mine in names]", 2),
        ("wanted: int = there.here", 1),
        ("class _Asked: ...", 1),
        ("match value:\n    case [one, *here]: ...", 2),
        ("try: ...\nexcept OSError as said: ...", 1),
        ("from files import read as found", 1),
        ("print(one, found=known)", 0),
    ],
)
def test_an_empty_word_counts_where_it_is_bound(source: str, count: int) -> None:
    assert len(names_in(ast.parse(source)).empty) == count


def glossary_words() -> set[str]:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return {word.strip() for row in GLOSSARY.findall(text) for word in row.split(",")}


def test_a_word_of_the_glossary_names_one_class() -> None:
    words = {word.title().replace(" ", "") for word in glossary_words()}
    classes: dict[str, list[str]] = {}
    for name, names in names_of_files().items():
        for each in words.intersection(names.classes):
            classes.setdefault(each, []).extend([name] * names.classes.count(each))
    assert classes.keys() >= {"Decider", "Tag"}  # the words are compared with classes at all
    assert {word for word, names in classes.items() if len(names) > 1} == NAMED_TWICE, classes
