"""Who keeps old versions: pins, tags, cursors and open transactions, the farthest behind the newest version first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, transaction_pb2
from worker.console.tables import shell_word
from worker.console.visits import Shown, TableNames, Visit, taken

EACH_MAX: Final = 1_000
TABLES_SHOWN: Final = 50
HOLDERS_SHOWN: Final = 20
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

    def command(self, holder: Holder) -> str:
        return holder.release.replace("{table}", shell_word(self.table.name))

    @property
    def horizon(self) -> int:
        return self.holders[0].version

    @property
    def behind(self) -> int:
        return self.table.head_version - self.horizon


def show(visit: Visit) -> Shown:
    client = visit.client
    by_table: defaultdict[str, list[Holder]] = defaultdict(list)
    for holder in holders_of(client):
        by_table[holder.table_id].append(holder)
    names = TableNames(client)
    held = []
    for table_id, holders in by_table.items():
        table = names.table(table_id)
        behind = [each for each in holders if table is not None and each.version < table.head_version]
        if table is not None and behind:
            behind.sort(key=lambda holder: holder.version)
            held.append(HeldTable(table, behind[:HOLDERS_SHOWN], max(len(behind) - HOLDERS_SHOWN, 0)))
    held.sort(key=lambda each: -each.behind)
    branches, more_branches = taken(client.list_branches(), EACH_MAX)
    facts = {
        "held": held[:TABLES_SHOWN],
        "left_out": max(len(held) - TABLES_SHOWN, 0),
        "branches": branches,
        "more_branches": more_branches,
        "most": EACH_MAX,
        "now_us": visit.now_us,
    }
    return Shown("retention.html", facts, live="/live/service")


def holders_of(client: MetaClient) -> Iterator[Holder]:
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
            yield Holder(
                cursor.table_id,
                cursor.version,
                "cursor",
                cursor.name,
                cursor.principal.name,
                cursor.used_time_us,
                cursor.left_ms,
                f"laketx cursor drop {{table}} {cursor.name}",
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
