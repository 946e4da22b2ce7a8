"""What the decider has changed in its state, and not written to the store yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from metaservice.service.decider.views import TableView


@dataclass(slots=True)
class Unwritten:
    """Operations for the store, tables that readers get a new view of, and tables whose counters of row ids moved."""

    ops: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    row_ids_given: set[str] = field(default_factory=set)
    restored_now: dict[bytes, bytes] = field(default_factory=dict)
    views: dict[str, TableView] = field(default_factory=dict)  # of tables that changed, as far as they are made
