"""The changes between two versions, from their rows."""

from tests.spark.reading import Identity, LabTable, Row

Change = tuple[Identity, str, int, Row]


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
