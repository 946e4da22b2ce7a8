"""The rule tables, as data. Pure look-ups; `judge.py` applies them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from metaservice.core.table.foreign_properties import DELETE_SETS
from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.core.table.model import Operation
from metaservice.core.table.properties import WRITER_PROPERTIES


class OpClass(Enum):
    """The classes of the outcome table."""

    INSERT_OVERWRITE = "INSERT OVERWRITE, TRUNCATE, RESTORE"
    INSERT_INTO = "INSERT INTO"
    UPDATE_DELETE = "UPDATE, DELETE, MERGE"
    MINOR_COMPACT = "MINOR COMPACT, CLUSTERING"
    MAJOR_COMPACT = "MAJOR COMPACT"


CLASS_OF: Mapping[Operation, OpClass] = {
    Operation.INSERT: OpClass.INSERT_INTO,
    Operation.OVERWRITE: OpClass.INSERT_OVERWRITE,
    Operation.TRUNCATE: OpClass.INSERT_OVERWRITE,
    Operation.RESTORE: OpClass.INSERT_OVERWRITE,
    Operation.UPDATE: OpClass.UPDATE_DELETE,
    Operation.DELETE: OpClass.UPDATE_DELETE,
    Operation.MERGE: OpClass.UPDATE_DELETE,
    Operation.MINOR_COMPACT: OpClass.MINOR_COMPACT,
    Operation.CLUSTER: OpClass.MINOR_COMPACT,
    Operation.MAJOR_COMPACT: OpClass.MAJOR_COMPACT,
}

STANDS: Mapping[OpClass, frozenset[OpClass]] = {  # my class -> the earlier classes that I may follow
    OpClass.INSERT_OVERWRITE: frozenset(OpClass),
    OpClass.INSERT_INTO: frozenset({OpClass.MINOR_COMPACT, OpClass.MAJOR_COMPACT}),
    OpClass.UPDATE_DELETE: frozenset({OpClass.MINOR_COMPACT, OpClass.MAJOR_COMPACT}),
    OpClass.MINOR_COMPACT: frozenset({OpClass.INSERT_INTO, OpClass.UPDATE_DELETE}),
    OpClass.MAJOR_COMPACT: frozenset({OpClass.MINOR_COMPACT}),
}

FOLLOWS: Mapping[Operation, frozenset[Operation]] = {  # by operations; what has no class stands outside the table
    own: frozenset(
        earlier
        for earlier in Operation
        if own not in CLASS_OF or earlier not in CLASS_OF or CLASS_OF[earlier] in STANDS[CLASS_OF[own]]
    )
    for own in Operation
}
if STANDS.keys() != set(OpClass):
    raise AssertionError("the outcome table lacks a class")

FEATURES = frozenset({DELETE_SETS, "row_ids"})


def feature_known(name: str) -> bool:
    return name in FEATURES or name.startswith("test_")


def writers_look_at(before: TableMeta, change: Alteration) -> bool:
    """Whether an alteration changes something that writers that began earlier rely on.

    Turning off a feature has a rule of its own.
    """
    if (FEATURES & set(change.add_features)) - before.features:
        return True
    if change.profile is not None and change.profile is not before.profile:
        return True
    if change.changes_schema or change.replacement is not None:
        return True
    touched = {name for name, value in change.set_properties.items() if before.properties.get(name) != value}
    touched |= set(change.remove_properties) & before.properties.keys()
    return bool(touched & WRITER_PROPERTIES)
