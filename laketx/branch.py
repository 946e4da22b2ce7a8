"""A branch of a lake: all tables as they are at an instant, to change and then to merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self

from laketx.history import HistoryEntry, history_entry
from laketx.merge_checks import CheckedLake, run_query
from laketx.table import Table
from metaservice.client import LakeTXError, MetaClient, NotFoundError
from metaservice.client.branch_diff import BranchedChanges, diff_branch, is_changed
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from worker.base.errors import InputError
from worker.base.values import moment_of

if TYPE_CHECKING:
    import pyarrow as pa

AT = "@"
MAIN = "main"
Check = Callable[["Branch"], bool] | str


@dataclass(frozen=True, slots=True)
class MergedTable:
    """What a merge did to a table of the parent, or a refresh to one of the branch, or would do; or why it can't.

    `fast_forward`: the parent's table was as the branch found it. Of one that is refused, `conflict` is the message
    of the first conflict of this table, `reason` its rule or the reason of a refusal, and `branch_version` the version
    on the branch that can't be merged. A view or a namespace has its `kind`, and no commits.
    """

    name: str
    commits: int
    version: int
    fast_forward: bool
    conflict: str = ""
    reason: str = ""
    branch_version: int = 0
    kind: str = "table"

    @classmethod
    def of_name(cls, name: catalog_pb2.BranchName) -> Self:
        """Reads what the service says of a view or a namespace."""
        return cls(name.name, 0, 0, False, name.message, name.reason, kind=name.kind)

    @classmethod
    def of(cls, table: catalog_pb2.MergedTable) -> Self:
        """Reads the service's answer."""
        lost = table.HasField("conflict")
        rule = common_pb2.ConflictRule.Name(table.conflict.rule).removeprefix("CONFLICT_RULE_") if lost else ""
        reason = rule or table.reason
        message = table.conflict.message if lost else table.message
        return cls(table.name, table.commits, table.version, table.fast_forward, message, reason, table.branch_version)


@dataclass(frozen=True, slots=True)
class TableDiff:
    """What changed in a table on a branch, and in the parent's table since the branch left; commits newest first.

    `change` is new, dropped or changed. Rows and files are sums over the branch's commits without compactions: a row
    that two commits changed counts twice. `columns` has a text for each column that was added, dropped or changed.
    A view or a namespace has its `kind`, and a `change`.
    """

    name: str
    change: str
    commits: list[HistoryEntry]
    parent_commits: list[HistoryEntry]
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    columns: list[str]
    parent_dropped: bool
    kind: str = "table"

    @classmethod
    def of_name(cls, name: catalog_pb2.BranchName) -> Self:
        """Reads what the service says of a view or a namespace."""
        return cls(name.name, name.change, [], [], 0, 0, 0, 0, [], False, kind=name.kind)

    @classmethod
    def of(cls, diff: BranchedChanges) -> Self:
        """Reads the client's answer."""
        return cls(
            diff.table.name,
            diff.change,
            [history_entry(commit) for commit in diff.commits],
            [history_entry(commit) for commit in diff.parent_commits],
            diff.total("rows_added"),
            diff.total("rows_removed"),
            diff.total("files_added"),
            diff.total("files_removed"),
            diff.columns,
            diff.is_parent_dropped,
        )


class MergeRefusedError(LakeTXError):
    """A merge or refresh that changed nothing: `tables` has the first conflict of each, or the check that failed."""

    def __init__(self, message: str, tables: Sequence[MergedTable] = ()) -> None:
        super().__init__(message)
        self.tables = list(tables)


class TablesByName(CheckedLake, Protocol):
    """The lake of a branch."""

    @property
    def client(self) -> MetaClient: ...

    def table(self, name: str) -> Table: ...

    @property
    def create_table(self) -> Callable[..., Table]: ...

    def drop_table(self, name: str) -> None: ...


class Branch:
    """A branch, made by `Lake.branch`. Its tables are named TABLE@BRANCH, for every call that takes a name.

        with lake.branch("etl") as branch:
            branch.table("shop.orders").append(rows)
            branch.merge(checks=["SELECT count(*) > 0 FROM shop.orders"])

    A branch that isn't merged stays until it is dropped or its time is over, also after the `with` block.
    """

    def __init__(self, lake: TablesByName, meta: catalog_pb2.Branch) -> None:
        self._lake = lake
        self._meta = meta

    @property
    def name(self) -> str:
        """The branch's name."""
        return self._meta.name

    @property
    def parent(self) -> str:
        """The branch that it left; empty: the lake itself."""
        return self._meta.parent

    @property
    def time(self) -> datetime:
        """The instant at which it left its parent."""
        return moment_of(self._meta.time_us)

    @property
    def expires(self) -> datetime | None:
        """When it ends by itself; None: never."""
        return moment_of(self._meta.expire_time_us) if self._meta.expire_time_us else None

    @property
    def comment(self) -> str:
        """The comment that it was made with."""
        return self._meta.comment

    @property
    def limits(self) -> list[str]:
        """The tables that it is limited to, by name or NAMESPACE.*; empty: it has all of them."""
        return list(self._meta.tables)

    def named(self, table: str) -> str:
        """The name of a table on this branch."""
        if AT in table:
            raise InputError("NAME_INVALID", f"{table} names a branch: give the table's name alone")
        return f"{table}{AT}{self.name}"

    def table(self, name: str) -> Table:
        """Returns the table of that name on the branch.

        Raises NotFoundError if the branch has no such table: it was made in the parent later, or dropped here.
        """
        return self._lake.table(self.named(name))

    def create_table(self, name: str, schema: Any, **options: Any) -> Table:
        """Creates a table on the branch alone, as `Lake.create_table` does; the merge adds it to the parent."""
        return self._lake.create_table(self.named(name), schema, **options)

    def drop_table(self, name: str) -> None:
        """Drops a table on the branch; the parent's table goes with the merge."""
        self._lake.drop_table(self.named(name))

    def tables(self, namespace: str = "") -> list[str]:
        """Returns the names of the tables of the branch, in order."""
        listed = self._lake.client.list_tables(namespace=namespace, branch=self.name)
        return [table.name.partition(AT)[0] for table in listed]

    def changed(self) -> list[catalog_pb2.BranchTable]:
        """Returns the tables that were changed, made or dropped on the branch, beside those of the parent."""
        tables = self._lake.client.get_branch(self.name).tables
        return [table for table in tables if is_changed(table)]

    def diff(self) -> list[TableDiff]:
        """Returns what changed on the branch and in its parent since, for each table that changed on the branch.

        Views and namespaces that changed follow the tables.

        for table in branch.diff():
            print(table.name, len(table.commits), len(table.parent_commits), table.columns)
        """
        names = self._lake.client.get_branch(self.name).names
        tables = [TableDiff.of(diff) for diff in diff_branch(self._lake.client, self.name)]
        return [*tables, *map(TableDiff.of_name, names)]

    def merge(
        self, *, checks: Sequence[Check] = (), keep: bool = False, dry_run: bool = False, txn_id: str | None = None
    ) -> list[MergedTable]:
        """Commits to the parent what was committed on the branch: in one transaction over all tables, or not at all.

            branch.merge(checks=["SELECT count(*) = 0 FROM shop.orders WHERE amount < 0"])

        A table that the parent did not change gets the branch's commits as they are. For another one each commit is
        judged against the parent's commits since, by the rules of the table's profile. No row is read or written.

        A check is a query that must answer true, alone; its tables are the branch's. Spark runs it if the lake uses it,
        otherwise DuckDB does, over whole tables in memory. Or it is a function that gets the branch and must return
        True. Then the checks of the tables' property `merge.checks` run. The branch ends with the merge; with `keep` it
        stays, and the merge is its new fork point. `dry_run` returns what a merge would do, with conflicts, and changes
        nothing. A merge is done once for a `txn_id`: the same again says what was committed.

        Raises MergeRefusedError, which has the first conflict of every table, or the check that did not hold.
        """
        if checks and not (txn_id and self._is_done(txn_id)):  # after the merge the branch has ended
            for number, check in enumerate(checks, start=1):
                self.check(check, f"check {number} of {len(checks)}")
        answer = self._lake.client.merge_checked_branch(
            self.name,
            lambda query, table: self.check(query, f"a check of the table {table}"),
            keep=keep,
            validate_only=dry_run,
            txn_id=txn_id,
        )
        tables = [*map(MergedTable.of, answer.tables), *map(MergedTable.of_name, answer.names)]
        if not answer.merged and not dry_run:
            raise MergeRefusedError(f"the branch {self.name} can't be merged: {_conflicts(tables)}", tables)
        if keep and not dry_run:
            self._meta = self._lake.client.get_branch(self.name).branch
        return tables

    def _is_done(self, txn_id: str) -> bool:
        try:
            state = self._lake.client.get_transaction(txn_id).state
        except NotFoundError:
            return False
        return state == transaction_pb2.TRANSACTION_STATE_COMMITTED

    def check(self, check: Check, named: str = "the check") -> None:
        """Raises MergeRefusedError if a check does not hold on the branch; see `merge`."""
        if isinstance(check, str):
            result = run_query(self._lake, self.name, check, self.rows)
            holds, detail = result.holds, f": {check} answered {result.answer}"
        else:
            holds, detail = check(self), ""
        if not holds:
            raise MergeRefusedError(f"{named} does not hold on the branch {self.name}{detail}")

    def rows(self, name: str) -> pa.Table:
        """Returns the rows of a table of the branch, or of what the name says: another branch, or `@main`."""
        plain, _, branch = name.partition(AT)
        if not branch:
            return self.table(plain).to_arrow()
        return self._lake.table(plain if branch.lower() == MAIN else name).to_arrow()

    def refresh(self, *, dry_run: bool = False, txn_id: str | None = None) -> list[MergedTable]:
        """Moves the fork point to now, with the branch's commits on top of the parent's newest versions.

            branch.refresh()
            orders = branch.table("shop.orders")  # by its name: the table has a new id

        The commits are judged as a merge judges them: all of them follow, or nothing changes. Tables that did not
        change on the branch show what the parent shows now. `dry_run` returns what would be done, with conflicts. A
        refresh is done once for a `txn_id`.

        Raises MergeRefusedError, which has the first conflict of every table.
        """
        answer = self._lake.client.refresh_branch(self.name, validate_only=dry_run, txn_id=txn_id)
        tables = [*map(MergedTable.of, answer.tables), *map(MergedTable.of_name, answer.names)]
        if not answer.refreshed and not dry_run:
            raise MergeRefusedError(f"the branch {self.name} can't be refreshed: {_conflicts(tables)}", tables)
        if not dry_run:
            self._meta = self._lake.client.get_branch(self.name).branch
        return tables

    def extend(self, keep: timedelta) -> None:
        """Sets how long from now the branch lives."""
        self._meta = self._lake.client.extend_branch(self.name, int(keep.total_seconds() * 1000))

    def drop(self) -> None:
        """Drops the branch with what was committed on it."""
        self._lake.client.drop_branch(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the block; the branch stays as it is."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __repr__(self) -> str:
        return f"Branch({self.name!r})"


def _conflicts(tables: Sequence[MergedTable]) -> str:
    return "; ".join(f"{table.name}: {table.conflict}" for table in tables if table.reason)
