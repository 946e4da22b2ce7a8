"""The changes between two versions, from their rows."""

from tests.spark.reading import Identity, Row

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
