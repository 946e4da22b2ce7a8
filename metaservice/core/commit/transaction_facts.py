"""What counts of a whole transaction where one of its tables is judged: is it blind, does it change data, and is it
INSERTs alone, so that its files can be resubmitted where it loses?

Worked example, two tables under `delta_serializable`:

    mine     reads a, inserts into b      its change of a is empty, and must still meet every append to a
    winner   reads b, inserts into a      neither saw what the other one wrote: one of the two has to lose
"""

from __future__ import annotations

from collections.abc import Sequence

from metaservice.core.table.model import SCOPED, Change, Operation


def tell(changes: Sequence[Change]) -> None:
    """Each change of one transaction learns what the others do."""
    if len(changes) < 2:
        return
    blind = [is_blind(change) for change in changes]
    with_data = [changes_data(change) for change in changes]
    inserts = [change.operation is Operation.INSERT for change in changes]
    for at, change in enumerate(changes):
        change.others_blind = all(blind[:at] + blind[at + 1 :])
        change.others_change_data = any(with_data[:at] + with_data[at + 1 :])
        change.others_insert = all(inserts[:at] + inserts[at + 1 :])


def is_blind(change: Change) -> bool:
    """Whether it removes nothing and read no data, for itself."""
    removes = change.removes or change.groups or change.operation in SCOPED
    return not (change.reads or removes or any(entry.is_delete_set for entry in change.adds))


def changes_data(change: Change) -> bool:
    """Whether an action of it does; an empty change of rows doesn't."""
    if change.operation in SCOPED:
        return True
    return any(entry.data_change for entry in change.adds) or any(ref.data_change for ref in change.removes)
