"""Modules are nouns of a readable size: none is long, few are short, and little of them is imports."""

import re
from functools import cache
from statistics import median

from tests.house.tree import GENERATED_SUFFIXES, list_files, name_of

PACKAGES = ("laketx/", "metaservice/", "worker/")
LINES_MAX = 450
IMPORTS_MAX = 0.09  # of all lines
SHORT = 50
IMPORT = re.compile(r"^ *(?:from [\w.]+ import (?:\([^)]*\)|.+)|import .+)$", re.MULTILINE)
SHORT_MODULES_MAX = 67  # it only falls; a command of `laketx` is a module of its own, however short


@cache
def sources() -> dict[str, str]:
    """The modules of the product that are written by hand."""
    paths = [path for path in list_files(".py") if name_of(path).startswith(PACKAGES)]
    return {
        name_of(path): path.read_text(encoding="utf-8")
        for path in paths
        if not path.name.endswith((*GENERATED_SUFFIXES, "__init__.py", "__main__.py"))
    }


def length(source: str) -> int:
    return len(source.splitlines())


def import_lines(source: str) -> int:
    return sum(length(statement) for statement in IMPORT.findall(source))


def test_no_module_is_long() -> None:
    long = {name: length(source) for name, source in sources().items() if length(source) > LINES_MAX}
    assert long == {}, "split it along a seam: each part a noun with its few classes"


def test_few_modules_are_short() -> None:
    short = sorted(name for name, source in sources().items() if length(source) < SHORT and "/cli/" not in name)
    assert len(short) <= SHORT_MODULES_MAX, short
    assert median(length(source) for source in sources().values()) > 100


def test_little_of_the_code_is_imports() -> None:
    imports = sum(import_lines(source) for source in sources().values())
    assert imports / sum(map(length, sources().values())) <= IMPORTS_MAX


def test_imports_are_counted_by_lines_and_wherever_they_are() -> None:
    assert import_lines("import a\nfrom b import (\n    c,\n)\n\ndef f():\n    import d\n") == 5
