"""Branches, and the names of tables on them: `shop.orders@etl` is the table shop.orders on the branch etl."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.core.table.model import COMPACTIONS, Operation, Principal
from metaservice.core.table.properties import KEY_SCOPE, ONLY_BY_MERGE
from metaservice.core.table.staged_names import is_unborn
from metaservice.shared.table_patterns import is_among

AT: Final = "@"
BRANCH_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class Branch:
    """All tables as their parent showed them at an instant, and what was committed on the branch since.

    `parent` is another branch, or empty for the lake itself. `expire_us` 0: never. `tables`: the names and NAMESPACE.*
    that it is limited to; empty: it has all tables.
    """

    name: str
    branch_id: str
    parent: str
    time_us: int
    principal: Principal
    comment: str
    expire_us: int
    digest: bytes = b""
    tables: tuple[str, ...] = ()

    def has(self, table_name: str) -> bool:
        """Whether a table of its parent can be on it, by the name without a branch."""
        return not self.tables or is_among(table_name, self.tables)

    def check_has(self, table_name: str) -> None:
        """Refuses a table that the branch is not limited to."""
        if not self.has(off_branch(table_name)):
            facts = {"name": table_name, "branch": self.name, "tables": ", ".join(self.tables)}
            raise MetaError(ErrorKind.NOT_FOUND, "TABLE_NOT_ON_BRANCH", **facts)


class BranchEventKind(StrEnum):
    """What can happen to a branch."""

    CREATED = "created"
    MERGED = "merged"
    REFRESHED = "refreshed"
    DROPPED = "dropped"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class BranchEvent:
    """Something that happened to a branch. A branch that was merged has ended, unless it was kept."""

    kind: BranchEventKind
    branch: str
    parent: str
    time_us: int
    principal: Principal
    comment: str
    txn_id: str = ""
    kept: bool = False


def check_branch_name(name: str) -> str:
    if not BRANCH_NAME.match(name) or name.lower() == MAIN or name.isdecimal():  # TABLE@7 is a version
        raise invalid("BRANCH_NAME_INVALID", branch=name[:64])
    return name


def branch_of(table_name: str) -> str:
    """The branch that a name says; empty: none."""
    return table_name.partition(AT)[2]


def on_branch(table_name: str, branch: str) -> str:
    """The name of a table of the lake on a branch."""
    return f"{table_name}{AT}{branch}" if branch else table_name


def off_branch(table_name: str) -> str:
    """The name without its branch."""
    return table_name.partition(AT)[0]


def check_same_branch(name: str, new_name: str) -> None:
    """Refuses a rename of a table on a branch, or onto one: the parent's table would not be found by its name."""
    if branch_of(name) or branch_of(new_name):
        raise MetaError(ErrorKind.BLOCKED, "RENAME_ON_BRANCH", name=name, new_name=new_name)


def check_direct(meta: TableMeta, operation: Operation, alteration: Alteration | None = None) -> None:
    """Refuses a commit to a table that takes them only by the merge of a branch.

    Table services may rewrite its files, and an ALTER may change what is no column. A statement that makes the table
    may fill it.
    """
    if (
        alteration is not None
        and branch_of(meta.name)
        and (alteration.checked_keys is not None or KEY_SCOPE in alteration.set_properties)
    ):
        raise MetaError(ErrorKind.BLOCKED, "KEY_SCOPE_ON_BRANCH", table=meta.name)
    if meta.properties.get(ONLY_BY_MERGE) != "true" or branch_of(meta.name) or is_unborn(meta.name):
        return
    passes = operation in COMPACTIONS or operation is Operation.ALTER
    if not passes or (alteration is not None and alteration.changes_schema):
        facts = {"table": meta.name, "operation": operation.name.lower()}
        raise MetaError(ErrorKind.BLOCKED, "ONLY_BY_MERGE", **facts)


def unknown_branch(name: str) -> MetaError:
    return MetaError(ErrorKind.NOT_FOUND, "BRANCH_UNKNOWN", branch=name)
