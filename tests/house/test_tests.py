"""Tests say something: each can fail, and one that is left out says why."""

import ast
import importlib
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec

import pytest

from tests.house.tree import list_files, name_of

TESTS = [path for path in list_files(".py") if name_of(path).startswith("tests/")]
VERIFIES = re.compile(r"raises|warns|assert|check|expect|verify|run_state_machine")
ELSEWHERE = {  # of a release before, and a name that explains itself
    ("tests/upgrade/releases.py", "worker.commands", "COMMANDS"),
    ("tests/unit/test_import_names.py", "worker", "connect"),
}
OURS = ("laketx", "metaservice", "worker", "protos")
LEAVES_OUT = {"skip", "skipif", "xfail", "importorskip"}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every file of the tests, parsed once for all rules."""
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in TESTS}


def test_every_test_can_fail(trees: dict[str, ast.Module]) -> None:
    assert [(name, found) for name, tree in trees.items() for found in list_unfailing(tree)] == []


def test_a_test_that_is_left_out_says_why(trees: dict[str, ast.Module]) -> None:
    assert [(name, found) for name, tree in trees.items() for found in list_unexplained(tree)] == []


def test_no_test_module_imports_another(trees: dict[str, ast.Module]) -> None:
    modules = [
        (name, node.module)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
    ]
    assert [(name, module) for name, module in modules if ".test_" in module] == [], "helpers have a module"


def test_programs_in_texts_import_what_is_there(trees: dict[str, ast.Module]) -> None:
    """Most of them run in long tests alone."""
    imports = {
        (name, module, what)
        for name, tree in trees.items()
        if not name.startswith("tests/house/")
        for program in list_programs(tree)
        for module, what in list_imports(program)
    }
    assert len(imports) > 20
    assert [each for each in sorted(imports - ELSEWHERE) if not is_there(*each[1:])] == []


@pytest.mark.parametrize(
    ("body", "can_fail"),
    [
        ("assert x", True),
        ("with pytest.raises(E): f()", True),
        ("check_store(s)", True),
        ("f()", False),
        ("pass", False),
    ],
)
def test_what_counts_as_a_test_that_can_fail(body: str, can_fail: bool) -> None:
    found = list(list_unfailing(ast.parse(f"def test_it():\n    {body}")))
    assert (found == []) == can_fail


@pytest.mark.parametrize(
    ("line", "says_why"),
    [
        ("pytest.skip('no disk to fill')", True),
        ("pytest.skip()", False),
        ("pytest.skip('')", False),
        ("pytest.mark.skipif(x, reason='needs Linux')(f)", True),
        ("pytest.mark.skipif(x)(f)", False),
        ("pytest.mark.skip(f)", False),
        ("mark = pytest.mark.xfail", False),
        ("numbers.skip(1)", True),
    ],
)
def test_what_counts_as_a_reason(line: str, says_why: bool) -> None:
    assert (list(list_unexplained(ast.parse(line))) == []) == says_why


def list_unfailing(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            inside = list(ast.walk(node))
            if any(isinstance(each, ast.Assert) for each in inside):
                continue
            calls = (ast.unparse(each.func) for each in inside if isinstance(each, ast.Call))
            if not any(VERIFIES.search(call) for call in calls):
                yield f"line {node.lineno}: {node.name}"


def list_programs(tree: ast.AST) -> Iterator[ast.Module]:
    """Texts that are Python and import something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            with suppress(SyntaxError):
                yield ast.parse(node.value.strip("\n"))


def list_imports(program: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(OURS):
            yield from ((node.module, alias.name) for alias in node.names)


def is_there(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ImportError:
        return False


def list_unexplained(tree: ast.AST) -> Iterator[str]:
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in LEAVES_OUT:
            continue
        owner = ast.unparse(node.value)
        if owner in {"pytest", "pytest.mark"} and not has_reason(calls.get(id(node)), node.attr):
            yield f"line {node.lineno}: {owner}.{node.attr}"


def has_reason(call: ast.Call | None, attribute: str) -> bool:
    if call is None:
        return False
    stated = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    if attribute in {"skip", "xfail"}:
        stated += call.args[:1]
    return any(is_sentence(value) for value in stated)


def is_sentence(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and bool(value.value.strip())
    return isinstance(value, ast.JoinedStr)
