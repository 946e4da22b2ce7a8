"""What a compaction made of one group."""

from __future__ import annotations

from dataclasses import dataclass, field

from protos.laketx.v1 import common_pb2
from worker.jobs.digests import KIND, Digest


@dataclass
class GroupOutcome:
    """Its new files, and the digests of what was read and what was written; `kind` says by which hash."""

    files: list[common_pb2.DataFile] = field(default_factory=list)
    input: Digest = field(default_factory=Digest)
    output: Digest = field(default_factory=Digest)
    kind: str = KIND
