"""The state of the clocks <-> bytes."""

from __future__ import annotations

from dataclasses import dataclass

from metaservice.core.clock import Instant
from protos.laketx.storage.v1 import records_pb2 as pb


@dataclass(frozen=True, slots=True)
class ClockState:
    """`believed` is the last instant at which the clock was trusted; if it is `held`, `held_ms` of running time have
    passed since.
    """

    believed: Instant
    seen: Instant
    held: bool = False
    held_ms: int = 0


def encode_clock(state: ClockState) -> bytes:
    return pb.ClockRecord(
        time_us=state.believed.time_us,
        boot=state.believed.boot,
        up_ms=state.believed.up_ms,
        held=state.held,
        held_ms=state.held_ms,
        seen_time_us=state.seen.time_us,
        seen_boot=state.seen.boot,
        seen_up_ms=state.seen.up_ms,
    ).SerializeToString()


def decode_clock(raw: bytes) -> ClockState:
    record = pb.ClockRecord.FromString(raw)
    believed = Instant(record.time_us, record.boot, record.up_ms)
    return ClockState(
        believed, Instant(record.seen_time_us, record.seen_boot, record.seen_up_ms), record.held, record.held_ms
    )
