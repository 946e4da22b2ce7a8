"""The tables of docs/coming-from.md: other systems' words, from the tables that the code reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from laketx import foreign_calls as calls
from metaservice.cli.command import COMMAND_OF
from metaservice.core.table.foreign_properties import FOREIGN_PROPERTIES, ForeignProperty, Meaning
from tools.generated import table
from tools.wire import ROOT

RESOURCES: Final = ROOT / "worker/spark_catalog/src/main/resources/io/laketx/spark"
DELTA, ICEBERG, MAXCOMPUTE = "Delta Lake", "Iceberg", "MaxCompute"
EXAMPLES: Final = {  # what stands in the place of a statement's own words
    "{table}": "shop.orders",
    "{source}": "shop.source",
    "{system}": "lake.system",
    "{whole}": "lake.shop.orders",
    "{catalog}": "lake",
    "{columns}": "'a', 'b'",
    "{version}": "12",
    "{time}": "'2026-11-01'",
    "{limit}": "5",
    "{tag}": "x",
    "{operation}": "MAJOR",
}

WRITTEN: Final = re.compile(  # what of a sentence is typed
    r"CALL [\w.]+(?:\((?:[^()]|\([^()]*\))*\))?|SELECT .* table_changes\(.*\)|laketx [a-z ]+(?= in a terminal)"
    r"|(?:DESCRIBE|ALTER TABLE) [^,`]+|^lake\.shop\.orders\.\w+$"
)


def coming_from(system: str) -> str:
    """All words of one system that are known."""
    properties = [one for one in FOREIGN_PROPERTIES if one.system == system]
    parts = {
        "Statements": (("statement", "runs", "here"), statements(system)),
        "Procedures": (("procedure", "here"), words(system, "procedure")),
        "Metadata tables of `lake.shop.orders`": (("table", "here"), words(system, "table")),
        "Python": (("call", "here"), python_calls(system)),
        "Properties of tables": (PROPERTY_HEAD, property_rows(properties)),
    }
    return "\n\n".join(f"**{title}**\n\n{table(head, rows)}" for title, (head, rows) in parts.items() if rows)


def statements(system: str) -> list[Sequence[str]]:
    """Those that the parser of the Spark catalog knows."""
    found: list[Sequence[str]] = []
    for systems, example, does, _, here in cells("foreign_statements.tsv"):
        if system in systems.split(", "):
            said = filled(here)
            found.append((f"`{example}`", "yes" if does == "runs" else "no", said))
    return found


def words(system: str, kind: str) -> list[Sequence[str]]:
    """Procedures or metadata tables that the Spark catalog knows."""
    return [
        (code(names.split()), filled(here.replace("{table}", "lake.shop.orders")))
        for systems, one, names, here in cells("foreign_words.tsv")
        if one == kind and system in systems.split(", ")
    ]


def python_calls(system: str) -> list[Sequence[str]]:
    """Calls of its libraries, as the errors of tables, lakes and merges have them."""
    found: list[Sequence[str]] = []
    for one in (*calls.OF_TABLES, *calls.OF_LAKES, *calls.OF_MERGES):
        names = {DELTA: one.delta, ICEBERG: one.iceberg}.get(system, "")
        if names:
            found.append((code(names.split()), one.equivalent))
    return found


PROPERTY_HEAD: Final = ("property", "accepted", "other values are refused: what to do")


def property_rows(properties: Iterable[ForeignProperty] = FOREIGN_PROPERTIES) -> list[Sequence[str]]:
    """Properties of other systems by what they mean."""
    return [
        (f"`{one.name}`", "; ".join(f"`{value}`: {meant(found)}" for value, found in one.meanings.items()), one.advice)
        for one in properties
    ]


def meant(meaning: Meaning) -> str:
    if meaning.profile is not None:
        return f"the profile `{meaning.profile}`"
    return f"turns on the feature `{meaning.feature}`" if meaning.feature else "changes nothing"


def commands() -> str:
    """Words of other tools' command lines."""
    by_command: dict[str, list[str]] = {}
    for word, command in COMMAND_OF.items():
        by_command.setdefault(command, []).append(word)
    rows = [(code(names), f"`laketx {command}`") for command, names in by_command.items()]
    return table(("word", "here"), rows)


def cells(name: str) -> list[list[str]]:
    """The lines of a table of the Spark catalog."""
    return [line.split("\t") for line in (RESOURCES / name).read_text(encoding="utf-8").splitlines()]


def filled(here: str) -> str:
    for name, word in EXAMPLES.items():
        here = here.replace(name, word)
    return WRITTEN.sub(r"`\g<0>`", here)


def code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "from-delta": partial(coming_from, DELTA),
    "from-iceberg": partial(coming_from, ICEBERG),
    "from-hudi": partial(coming_from, "Hudi"),
    "from-paimon": partial(coming_from, "Paimon"),
    "from-maxcompute": partial(coming_from, MAXCOMPUTE),
    "from-terminals": commands,
    "foreign-properties": lambda: table(PROPERTY_HEAD, property_rows()),
}
