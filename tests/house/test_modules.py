"""Modules are nouns of a readable size: none is long, few are short, and little of them is imports."""

import ast
import re
from collections import Counter
from functools import cache
from statistics import median

from tests.house.tree import GENERATED_SUFFIXES, list_files, name_of

PACKAGES = ("laketx/", "metaservice/", "worker/")
LINES_MAX = 450
IMPORTS_MAX = 0.09  # of all lines
SHORT = 50
IMPORT = re.compile(r"^ *(?:from [\w.]+ import (?:\([^)]*\)|.+)|import .+)$", re.MULTILINE)
USERS_MIN = 2  # a short module that several others import is the one place of what they share
COMMANDS = re.compile(r"^metaservice/cli/|^laketx/commands/|_command\.py$")  # a module each, however short
REASONS = {
    "laketx/dlt/jobs.py": "know of the client only what a protocol says",
    "laketx/spark_rows.py": "needs Spark, which its only user must not import",
    "metaservice/client/epochs.py": "an interceptor of gRPC has a method for each kind of call",
    "metaservice/client/health.py": "probes ask it too, and import nothing else of the client",
    "metaservice/offline/command.py": "the commands of `python -m metaservice`",
    "metaservice/rpc/services/key_checks.py": "each servicer is a module",
    "metaservice/rpc/services/warehouse.py": "each servicer is a module",
    "metaservice/server/bucket_metrics.py": "imports SlateDB, which is an extra",
    "metaservice/service/decider/group_commit_delay.py": "a policy that its tests drive without a decider",
    "metaservice/store/records/clocks.py": "each kind of record has a module",
    "worker/arrow/changes/image_chains.py": "columns in, columns out, beside what reads files",
}


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


def imported(name: str, source: str) -> set[str]:
    """The names that an import in this module can mean: each module that it names, and each name within it."""
    found = set()
    for statement in ast.walk(ast.parse(source, name)):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            found |= {statement.module} | {f"{statement.module}.{alias.name}" for alias in statement.names}
        elif isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
    return found


def test_short_modules_have_a_reason() -> None:
    users = Counter(module for name, source in sources().items() for module in imported(name, source))
    short = {name for name, source in sources().items() if length(source) < SHORT and not COMMANDS.search(name)}
    alone = {name for name in short if users[name.removesuffix(".py").replace("/", ".")] < USERS_MIN}
    assert sorted(alone) == sorted(REASONS), "move it to the module that uses it, or say why it stands alone"


def test_modules_are_not_short_as_a_rule() -> None:
    assert median(length(source) for source in sources().values()) > 100


def test_little_of_the_code_is_imports() -> None:
    imports = sum(import_lines(source) for source in sources().values())
    assert imports / sum(map(length, sources().values())) <= IMPORTS_MAX


def test_imports_are_counted_by_lines_and_wherever_they_are() -> None:
    assert import_lines("import a\nfrom b import (\n    c,\n)\n\ndef f():\n    import d\n") == 5
