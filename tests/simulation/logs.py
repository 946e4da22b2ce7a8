"""Tables' logs as the checks replay them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metaservice.core.table.meta import Profile
from protos.laketx.storage.v1 import records_pb2 as pb

Rows = Mapping[object, object]
Place = tuple[str, int, str]


class ViolationError(Exception):
    """The service broke a promise."""


def check(holds: bool, promise: str, *facts: object) -> None:
    if not holds:
        raise ViolationError(f"{promise}: {facts}")


@dataclass(slots=True)
class Spec:
    """A table of the history."""

    table_id: str
    keyed: bool
    profile: Profile


@dataclass(slots=True)
class File:
    """An entry of the replayed log."""

    data_version: int
    added: int
    rows: Rows


@dataclass(slots=True)
class Log:
    """One table's log, replayed. A fork's begins with that of its base, up to the version `begin`."""

    spec: Spec
    raw: list[bytes] = field(default_factory=list)
    commits: list[pb.CommitRecord] = field(default_factory=list)
    live: dict[Place, File] = field(default_factory=dict)
    snapshots: list[dict[Place, tuple[int, int]]] = field(default_factory=list)
    row_ids_end: list[tuple[int, int, str]] = field(default_factory=list)
    answered: list[tuple[int, int]] = field(default_factory=list)
    base: Log | None = None
    begin: int = 0
    branch: str = ""
    before: Log | None = None  # the same table on the branch before the branch got a new fork point
    has_ended: bool = False

    def forked(self, spec: Spec, version: int, branch: str, rows: Mapping[str, Rows]) -> Log:
        """The log of a fork of this table. Its rows have ids of the same counter."""
        end = version + 1
        snapshots = self.snapshots[:end]
        live = {place: File(*versions, rows[place[2]]) for place, versions in snapshots[version].items()}
        fork = Log(spec, self.raw[:end], self.commits[:end], live, snapshots, self.row_ids_end)
        fork.base, fork.begin, fork.branch = self, version, branch
        return fork

    @property
    def own(self) -> list[pb.CommitRecord]:
        """The commits that are not its base's."""
        return self.commits[self.begin + 1 :]

    def visible(self) -> dict[object, object]:
        """Rows as a reader sees them: among files of a bucket the highest data version wins."""
        rows: dict[object, object] = {}
        for (partition, bucket, _), one in sorted(self.live.items(), key=lambda item: (item[1].data_version, item[0])):
            rows.update({(partition, bucket, key): value for key, value in one.rows.items()})
        return rows
