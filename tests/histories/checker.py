"""A recorded history held against what is promised: `violations` names what was broken. Pure."""

import csv
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from tests.histories.history import COMPACTIONS, INSERT, History, Part, Replayed, Txn, replay
from tests.histories.serial import check_serial

TABLE = Path(__file__).resolve().parents[1] / "conformance" / "cases" / "outcome_table.csv"


def violations(history: History) -> list[str]:
    broken = [*check_log(history), *check_answers(history), *check_real_time(history), *check_looks(history)]
    if broken:
        return broken  # what follows takes the log for what it is
    tables = {table: replay(history, table) for table in history.logs}
    broken += check_rows(history, tables)
    broken += check_serial(history, tables)
    if history.profile == "maxcompute":
        broken += check_outcome_table(history, tables)
    return broken


def check_log(history: History) -> Iterator[str]:
    """Versions without gaps, each later than the one before it; tables of one transaction at one time, all or none."""
    places: dict[str, dict[str, int]] = {}
    times: dict[str, set[int]] = {}
    for table, log in history.logs.items():
        if [logged.version for logged in log] != list(range(len(log))):
            yield f"gap in the versions of {table}: {[logged.version for logged in log]}"
        for before, after in pairwise(log):
            if after.time_us <= before.time_us:
                yield f"{table} version {after.version} is not later than the one before it"
        for logged in log[1:]:
            if table in places.setdefault(logged.txn_id, {}):
                yield f"{logged.txn_id} committed twice to {table}"
            places[logged.txn_id][table] = logged.version
            times.setdefault(logged.txn_id, set()).add(logged.time_us)
    for txn_id, there in places.items():
        txn = history.txns.get(txn_id)
        if txn is None:
            yield f"nobody began {txn_id}, which is in the log of {sorted(there)}"
        elif there.keys() != txn.parts.keys():
            yield f"{txn_id} is in the log of {sorted(there)}, and changes {sorted(txn.parts)}"
        if len(times[txn_id]) > 1:
            yield f"{txn_id} has two times"
    for txn in history.txns.values():
        yield from check_in_log(txn, places.get(txn.txn_id, {}))


def check_in_log(txn: Txn, there: Mapping[str, int]) -> Iterator[str]:
    for answer in txn.answers[:1]:
        if answer.committed and dict(answer.versions) != there:
            yield f"{txn.txn_id} was told {dict(answer.versions)}, the log has {dict(there)}"
        if not answer.committed and there:
            yield f"{txn.txn_id} was told that it lost, and is in the log"


def check_answers(history: History) -> Iterator[str]:
    """The same question gets the same answer; who lost did so to a commit since its read version."""
    for txn in history.txns.values():
        if len(set(txn.answers)) > 1:
            yield f"{txn.txn_id} got different answers: {txn.answers}"
        for answer in txn.answers[:1]:
            if answer.winner is None:
                continue
            table, version = answer.winner
            if not txn.parts[table].read_version < version < len(history.logs[table]):
                yield f"{txn.txn_id} lost to version {version} of {table}, which is none since its read version"


def check_real_time(history: History) -> Iterator[str]:
    """Who begins to read after a commit was answered sees it."""
    for table in history.logs:
        told = sorted(
            (txn.told_s, version)
            for txn in history.txns.values()
            for answer in txn.answers[:1]
            for name, version in answer.versions
            if name == table
        )
        asked = sorted((part.asked_s, part.read_version, txn) for txn, part in parts_of(history, table))
        newest = 0
        for asked_s, read_version, txn_id in asked:
            while told and told[0][0] < asked_s:
                newest = max(newest, told.pop(0)[1])
            if read_version < newest:
                yield f"{txn_id} read version {read_version} of {table} after version {newest} was answered"


def parts_of(history: History, table: str) -> Iterator[tuple[str, Part]]:
    for txn in history.txns.values():
        if table in txn.parts:
            yield txn.txn_id, txn.parts[table]


def check_looks(history: History) -> Iterator[str]:
    """What was answered for a time stays the answer."""
    for look in history.looks:
        there = max(one.version for one in history.logs[look.table] if one.time_us <= look.time_us)
        if there != look.version:
            yield f"{look.table} at {look.time_us} was answered as version {look.version}, and is {there}"


def check_rows(history: History, tables: Mapping[str, Replayed]) -> Iterator[str]:
    """What the files show is what the changes say; what a transaction found was there at its read version."""
    for (table, version), rows in history.shown.items():
        expected = tables[table].states[version]
        if rows != expected:
            differ = sorted(row for row in rows.keys() | expected.keys() if rows.get(row) != expected.get(row))
            logged = history.logs[table][version]
            yield f"{table} version {version} ({logged.txn_id}) shows other rows than were written: {differ[:3]}"
    for txn in history.txns.values():
        for table, part in txn.parts.items():
            there = tables[table].states[part.read_version]
            wrong = [row for row, image in part.hides.items() if there.get(row) != image]
            if wrong:
                yield f"{txn.txn_id} found rows in {table} that version {part.read_version} doesn't hold: {wrong[:3]}"


def check_outcome_table(history: History, tables: Mapping[str, Replayed]) -> Iterator[str]:
    """Who committed may follow each winner that shares a partition with it; who lost may not follow its winner."""
    with TABLE.open(encoding="utf-8") as lines:
        stands = {(row["earlier"], row["later"]): row["later_stands"] == "yes" for row in csv.DictReader(lines)}
    for table, replayed in tables.items():
        written: dict[int, set[str]] = {}
        for write in replayed.writes:
            written.setdefault(write.version, set()).add(write.row[0])
        for logged in history.logs[table][1:]:
            mine = history.txns[logged.txn_id].parts[table]
            for winner in history.logs[table][mine.read_version + 1 : logged.version]:
                theirs = history.txns[winner.txn_id].parts[table]
                places = written.get(winner.version, set()) | theirs.compacts
                shared = sorted(place for place in places if covers(mine, place))
                if shared and not stands[theirs.kind, mine.kind]:
                    yield f"{logged.txn_id} ({mine.kind}) follows {winner.txn_id} ({theirs.kind}) in {table} {shared}"
    for txn in history.txns.values():
        for answer in txn.answers[:1]:
            if answer.winner is not None and answer.rule == "OUTCOME_TABLE":
                table, version = answer.winner
                theirs = history.txns[history.logs[table][version].txn_id].parts[table]
                if stands[theirs.kind, txn.parts[table].kind]:
                    yield f"{txn.txn_id} lost to {theirs.kind}, which it may follow"


def covers(part: Part, partition: str) -> bool:
    if part.kind in COMPACTIONS:
        return partition in part.compacts
    if any(row[0] == partition for row in (*part.puts, *part.hides)) or partition in (part.scope or ()):
        return True
    return part.kind != INSERT and any(search.partition in (None, partition) for search in part.searches)
