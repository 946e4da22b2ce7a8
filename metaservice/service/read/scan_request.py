"""What a scan's plan is asked for, and what it says that it left out."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from metaservice.core.table.predicates import TRUE, Predicate
from metaservice.core.table.pruning import NO_PRUNING, Pruning, Row
from metaservice.service.read.key_files import KeyFiles


class ReadBounds(Protocol):
    """Reads the bounds of some columns from a file's payload."""

    @property
    def key(self) -> Hashable:
        """Equal for readers that read the same."""

    def read(self, payload: bytes) -> Row: ...


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A request for a plan."""

    version: int
    on_partitions: Predicate = TRUE
    named: frozenset[str] | None = None
    pruning: Pruning = NO_PRUNING
    bounds: ReadBounds | None = None
    explain: bool = False
    key_files: KeyFiles | None = None  # of a keyed table

    @property
    def is_whole(self) -> bool:
        """Whether it leaves nothing out."""
        return self.on_partitions == TRUE and self.named is None and not self.pruning.tests and self.key_files is None


@dataclass(slots=True)
class Explanation:
    """What a plan left out; complete when all entries were read."""

    partitions: int = 0
    partitions_pruned: int = 0
    files: int = 0
    files_pruned_by_partition: int = 0
    files_pruned_by_statistics: int = 0
    files_kept: int = 0
    delete_sets: int = 0
    delete_sets_kept: int = 0
    conjuncts: dict[tuple[Predicate, bool], int] = field(default_factory=dict)  # and whether partitions decide it

    def blame(self, conjunct: Predicate, *, by_partition: bool, files: int) -> None:
        self.conjuncts[conjunct, by_partition] = self.conjuncts.get((conjunct, by_partition), 0) + files
