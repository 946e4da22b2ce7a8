"""The changes between two versions, from their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from protos.laketx.v1 import catalog_pb2
from tests.spark.reading import Identity, LabTable, Row, Rows

Change = tuple[Identity, str, int, Row]
Look = tuple[int, int, str]  # since, until, mode; a version alone is (v, v, "")
Shown = dict[int, list[str]]  # rows as text, by case


def difference(before: dict[Identity, Row], after: dict[Identity, Row], version: int) -> list[Change]:
    found: list[Change] = []
    for identity in before.keys() | after.keys():
        old, new = before.get(identity), after.get(identity)
        if old == new:
            continue
        if old is None and new is not None:
            found.append((identity, "insert", version, new))
        elif new is None and old is not None:
            found.append((identity, "delete", version, old))
        elif old is not None and new is not None:
            found += [(identity, "update_preimage", version, old), (identity, "update_postimage", version, new)]
    return found


def log_of(table: LabTable, since: int, until: int) -> list[Change]:
    return [
        change
        for version in table.logical
        if since < version <= until
        for change in difference(table.at[version - 1], table.at[version], version)
    ]


def wanted(table: LabTable, since: int, until: int, mode: str) -> list[str]:
    log = log_of(table, since, until)
    if mode == "log":
        return texts(table, log)
    last = {identity: version for identity, _, version, _ in log}
    whole = difference(table.at[since], table.at[until], 0)
    changes = [(identity, kind, last[identity], row) for identity, kind, _, row in whole]
    if mode == "latest":
        changes = [change for change in changes if change[1] in ("insert", "update_postimage")]
    return texts(table, changes)


def texts(table: LabTable, changes: list[Change]) -> list[str]:
    return sorted(repr((*(row[name] for name in table.names), kind, version)) for _, kind, version, row in changes)


class Oracle:
    """What every look at a table must show, from the rows that its versions have."""

    def __init__(self, table: LabTable) -> None:
        self.table = table
        self._rows: dict[tuple[int, int], Rows] = {}
        self._columns: dict[int, Sequence[catalog_pb2.Column]] = {}

    def columns(self, version: int) -> Sequence[catalog_pb2.Column]:
        if version not in self._columns:
            meta = self.table.lake.client.get_table(table_id=self.table.table_id, version=version)
            self._columns[version] = list(meta.columns)
        return self._columns[version]

    def rows(self, version: int, end: int) -> Rows:
        if (version, end) not in self._rows:
            self._rows[version, end] = self.table.rows_under(version, end)
        return self._rows[version, end]

    def shown(self, look: Look) -> Shown:
        since, until, mode = look
        if not mode:
            return self._texts(until, ((row,) for row in self.rows(until, until).values()))
        log = self._log(since, until)
        if mode == "log":
            changes = log
        else:
            last = {identity: version for identity, _, version, _ in log}
            whole = difference(self.rows(since, until), self.rows(until, until), 0)
            kinds = (
                ("insert", "update_postimage")
                if mode == "latest"
                else ("insert", "update_preimage", "update_postimage", "delete")
            )
            changes = [(identity, kind, last[identity], row) for identity, kind, _, row in whole if kind in kinds]
        return self._texts(until, ((row, kind, version) for _, kind, version, row in changes))

    def _log(self, since: int, until: int) -> list[Change]:
        return [
            change
            for version in self.table.logical
            if since < version <= until
            for change in difference(self.rows(version - 1, until), self.rows(version, until), version)
        ]

    def _texts(self, end: int, entries: Iterable[tuple[Any, ...]]) -> Shown:
        names = [column.name for column in self.columns(end)]
        found: Shown = defaultdict(list)
        for row, *rest in entries:
            found[row["cased"]].append(repr((*(row[name] for name in names), *rest)))
        return {case: sorted(texts) for case, texts in found.items()}
