"""Who keeps old versions, the farthest behind the newest version first: pins, tags, open transactions, cursors, views,
branches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from metaservice.client import GoneError, InvalidError, MetaClient
from metaservice.shared.table_patterns import is_among
from protos.laketx.v1 import catalog_pb2, transaction_pb2
from worker.console.consumers import VIEW, kind_of
from worker.console.history_strip import version_by
from worker.console.hold_chart import Hold, HoldChart, draw_holds
from worker.console.snippets import shell_word
from worker.console.visits import GONE, LIVE_SERVICE, Shown, TableNames, Visit, taken

EACH_MAX: Final = 1_000
TABLES_SHOWN: Final = 50
HOLDERS_SHOWN: Final = 20
BRANCH_TABLES_MAX: Final = 2_000  # that are looked at for branches
BRANCH_HOLDS_MAX: Final = 100  # each costs a call
RETAIN_HOURS: Final = 168  # where the table's property says nothing
HOUR_US: Final = 3_600_000_000
OPEN: Final = transaction_pb2.TRANSACTION_STATE_OPEN


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who keeps a version of a table."""

    table_id: str
    version: int
    kind: str
    name: str
    who: str
    since_us: int
    left_ms: int | None  # None: until it is released
    release: str  # the command; {table} is the name of the table


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table, and who keeps its old versions."""

    table: catalog_pb2.Table
    holders: list[Holder]
    left_out: int
    retained: int  # the oldest version that is kept without a holder

    def command(self, holder: Holder) -> str:
        return holder.release.replace("{table}", shell_word(self.table.name))

    @property
    def horizon(self) -> int:
        return self.holders[0].version

    @property
    def behind(self) -> int:
        return self.table.head_version - self.horizon

    @property
    def chart(self) -> HoldChart:
        holds = [Hold(holder.version, holder.kind, holder.name) for holder in self.holders]
        return draw_holds(holds, self.retained, self.table.head_version)

    @property
    def retain_hours(self) -> int:
        return retain_hours(self.table)


def show(visit: Visit) -> Shown:
    client, names = visit.client, TableNames(visit.client)
    by_table: defaultdict[str, list[Holder]] = defaultdict(list)
    branches, more_branches = taken(client.list_branches(), EACH_MAX)
    in_branches, is_cut = branch_holders(client, branches, visit.now_us)
    for holder in (*holders_of(client, names), *in_branches):
        by_table[holder.table_id].append(holder)
    held: list[tuple[catalog_pb2.Table, list[Holder]]] = []
    for table_id, holders in by_table.items():
        table = names.table(table_id)
        behind = [each for each in holders if table is not None and each.version < table.head_version]
        if table is not None and behind:
            behind.sort(key=lambda holder: holder.version)
            held.append((table, behind))
    held.sort(key=lambda each: each[1][0].version - each[0].head_version)
    facts = {
        "held": [held_table(client, table, behind, visit.now_us) for table, behind in held[:TABLES_SHOWN]],
        "left_out": max(len(held) - TABLES_SHOWN, 0),
        "branches": branches,
        "more_branches": more_branches,
        "is_cut": is_cut,
        "most": EACH_MAX,
        "now_us": visit.now_us,
    }
    return Shown("retention.html", facts, live=LIVE_SERVICE)


def held_table(client: MetaClient, table: catalog_pb2.Table, holders: list[Holder], now_us: int) -> HeldTable:
    since_us = now_us - retain_hours(table) * HOUR_US
    retained = max(version_by(client, table, since_us, 0), 0)
    return HeldTable(table, holders[:HOLDERS_SHOWN], max(len(holders) - HOLDERS_SHOWN, 0), retained)


def retain_hours(table: catalog_pb2.Table) -> int:
    """How long the table keeps a version that is no longer the newest, whoever reads it."""
    text = table.properties.get("data.retain.hours", "")
    return int(text) if text.isdecimal() else RETAIN_HOURS


def holders_of(client: MetaClient, names: TableNames) -> Iterator[Holder]:
    """All that the caller may see, at most so many of each kind."""
    for pin in islice(client.list_pins(), EACH_MAX):
        who = " ".join(filter(None, (pin.principal.name, pin.principal.client)))
        yield Holder(
            pin.table_id,
            pin.version,
            "pin",
            pin.pin_id,
            who,
            pin.begin_time_us,
            pin.lease_left_ms,
            f"laketx pins end {pin.pin_id}",
        )
    for tag in islice(client.list_tags(), EACH_MAX):
        command = f"laketx tag drop {{table}} {tag.name}"
        yield Holder(tag.table_id, tag.version, "tag", tag.name, tag.principal.name, tag.create_time_us, None, command)
    for cursor in islice(client.list_cursors(), EACH_MAX):
        if not cursor.expired:
            kind = kind_of(cursor)
            view = names[cursor.name.removeprefix(VIEW)] if kind == "view" else ""
            drop = f"laketx cursor drop {{table}} {cursor.name}"
            yield Holder(
                cursor.table_id,
                cursor.version,
                "view" if view else "cursor",
                view or cursor.name,
                cursor.principal.name,
                cursor.used_time_us,
                cursor.left_ms,
                f"laketx view refresh {shell_word(view)}" if view else drop,
            )
    for each in islice(client.list_transactions(state=OPEN), EACH_MAX):
        for intent in each.tables:
            if intent.HasField("read_version"):
                yield Holder(
                    intent.table_id,
                    intent.read_version,
                    "open transaction",
                    each.txn_id,
                    each.principal.name,
                    each.begin_time_us,
                    None,
                    f"laketx txn abort {each.txn_id}",
                )


def branch_holders(
    client: MetaClient, branches: Sequence[catalog_pb2.Branch], now_us: int
) -> tuple[list[Holder], bool]:
    """What branches of the lake keep of its tables, and whether there is more.

    A branch keeps all versions since it left; what a branch of a branch keeps, its parent does.
    """
    holders: list[Holder] = []
    of_lake = [branch for branch in branches if not branch.parent]
    tables, is_cut = taken(client.list_tables(), BRANCH_TABLES_MAX) if of_lake else ([], False)
    for branch in of_lake:
        for table in tables:
            is_in = not branch.tables or is_among(table.name, branch.tables)
            is_changed = table.create_time_us <= branch.time_us < table.head_commit_time_us
            if not is_in or not is_changed or "@" in table.name:
                continue
            if len(holders) == BRANCH_HOLDS_MAX:
                return holders, True
            holder = branch_holder(client, branch, table, now_us)
            if holder is not None:
                holders.append(holder)
    return holders, is_cut


def branch_holder(
    client: MetaClient, branch: catalog_pb2.Branch, table: catalog_pb2.Table, now_us: int
) -> Holder | None:
    """None: the table was dropped meanwhile, or has given up its version of that time."""
    try:
        left = client.resolve_version(table.table_id, time_us=branch.time_us).version
    except (*GONE, GoneError, InvalidError):
        return None
    ends_us = branch.expire_time_us
    return Holder(
        table.table_id,
        left,
        "branch",
        branch.name,
        branch.principal.name,
        branch.time_us,
        max(ends_us - now_us, 0) // 1_000 if ends_us else None,
        f"laketx branch drop {branch.name}",
    )
