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
CEILINGS = {"laketx": 0, "metaservice": 0, "worker": 272}  # they only fall
NAMED_TWICE = {"Branch", "Cursor", "Entry", "Session"}  # it only shrinks
GLOSSARY = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


@dataclass(frozen=True)
class Names:
    """What a file names."""

    empty: int
    classes: list[str]


@cache
def names_of_files() -> dict[str, Names]:
    """Each file of the packages is parsed once for all rules, and its tree forgotten."""
    folders = tuple(f"{package}/" for package in CEILINGS)
    paths = [path for path in list_files(".py") if name_of(path).startswith(folders)]
    return {name_of(path): names_in(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}


def names_in(tree: ast.AST) -> Names:
    nodes = list(ast.walk(tree))
    empty = sum(name.lower() in EMPTY for node in nodes for name in bound_names(node))
    return Names(empty, [node.name for node in nodes if isinstance(node, ast.ClassDef)])


def bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node binds: a use of it doesn't count again."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case _:
            pass


@pytest.mark.parametrize("package", CEILINGS)
def test_empty_words_name_nothing_new(package: str) -> None:
    counts = {name: names.empty for name, names in names_of_files().items() if name.startswith(f"{package}/")}
    total, ceiling = sum(counts.values()), CEILINGS[package]
    worst = sorted(counts.items(), key=lambda item: -item[1])[:5]
    assert total <= ceiling, f"{package} has {total} empty names, {ceiling} are allowed; most are in {worst}"
    assert total > ceiling - 50, f"lower the ceiling of {package} to {total}"


def test_an_empty_name_is_counted_wherever_it_is_bound() -> None:
    source = "def told(one, *, known):\n    self.found = [mine for mine in one]\n    wanted: int = there.here\n"
    assert names_in(ast.parse(source)).empty == 6


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
