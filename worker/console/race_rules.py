"""The rules that decide races, as tables to read: who may follow whom, and the rule that a race was lost to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from protos.laketx.v1 import common_pb2

FILE: Final = "race_rules.json"  # made by tools/gen_console.py from the service's own tables
OUTCOME_TABLE: Final = "OUTCOME_TABLE"


@dataclass(frozen=True, slots=True)
class PairTable:
    """Which class of operations commits after which: the earlier one by row, the later one by column.

    `row` and `column` are the cell of a race; -1: its operations have no class.
    """

    title: str
    classes: Sequence[str]
    outcomes: Sequence[Sequence[str]]
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by which transactions lose, and whether a race was lost to it."""

    name: str
    meaning: str
    is_lit: bool


@dataclass(frozen=True, slots=True)
class RaceRules:
    """The rules for a race. `pairs` is None for profiles that judge by reads alone."""

    pairs: PairTable | None
    rules: Sequence[Rule]


@cache
def given() -> Mapping[str, Any]:
    rules: Mapping[str, Any] = json.loads(resources.files("worker.console").joinpath(FILE).read_text(encoding="utf-8"))
    return rules


def rules_of(conflict: common_pb2.Conflict, profile: str) -> RaceRules:
    """For a lost race in a table of a profile; empty: the table is gone."""
    rule = name_of(common_pb2.ConflictRule.Name(conflict.rule))
    meanings: Mapping[str, str] = given()["meanings"]
    names = [rule] if rule == OUTCOME_TABLE else [name for name in meanings if name != OUTCOME_TABLE]
    return RaceRules(pairs_of(conflict, rule, profile), [Rule(name, meanings[name], name == rule) for name in names])


def pairs_of(conflict: common_pb2.Conflict, rule: str, profile: str) -> PairTable | None:
    """The table that decides by this rule which pairs of operations lose."""
    class_of: Mapping[str, int] = given()["class_of"]
    row, column = (
        class_of.get(name_of(common_pb2.Operation.Name(each)), -1)
        for each in (conflict.winner_operation, conflict.operation)
    )
    for table in given()["pairs"]:
        if rule in table["rules"] and (not table["profiles"] or profile in table["profiles"]):
            return PairTable(table["title"], given()["classes"], table["outcomes"], row, column)
    return None


def name_of(value: str) -> str:
    """A name of an enum of the wire without the enum's own."""
    return value.removeprefix("OPERATION_").removeprefix("CONFLICT_RULE_")
