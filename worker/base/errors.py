"""The worker's errors beside the client's, and the text of a lost race."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metaservice.client import ConflictError, LakeTXError
from protos.laketx.v1 import common_pb2

NextSteps = Mapping["common_pb2.Advice.ValueType", str]
NEXT_STEP: Final[NextSteps] = {
    common_pb2.ADVICE_RESUBMIT: "the staged files can be reused: on_conflict='resubmit' commits them at the new head",
    common_pb2.ADVICE_RERUN: "run it again: on_conflict='rerun' does so against the new head",
    common_pb2.ADVICE_RELOAD: "the table's schema or settings changed: refresh() the table and run it again",
    common_pb2.ADVICE_PLAN_AGAIN: "plan the compaction again",
}


class InputError(LakeTXError, ValueError):
    """The call can't be carried out as written; nothing was written. `reason` is a stable word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


def lost_race(conflict: common_pb2.Conflict, table: str, attempts: int = 1, advice: str = "") -> ConflictError:
    """The error of a write that lost a race. Its text names the winner, the rule and the advice: this, or the usual."""
    steps = {conflict.advice: advice} if advice else NEXT_STEP
    return ConflictError(conflict, conflict_text(conflict, table, attempts, steps), table=table, attempts=attempts)


def conflict_text(conflict: common_pb2.Conflict, table: str, attempts: int, next_step: NextSteps = NEXT_STEP) -> str:
    winner = word(common_pb2.Operation.Name(conflict.winner_operation), "OPERATION_")
    who = f" by {conflict.winner_principal.name}" if conflict.winner_principal.name else ""
    where = f", partition {conflict.partition}" if conflict.partition else ""
    operation = word(common_pb2.Operation.Name(conflict.operation), "OPERATION_")
    tried = f" (attempt {attempts})" if attempts > 1 else ""
    rule = word(common_pb2.ConflictRule.Name(conflict.rule), "CONFLICT_RULE_")
    lines = [
        f"{operation} on {table}{where} lost a race{tried}: {conflict.message}".rstrip(": "),
        f"  winner: {winner}{who}, version {conflict.winner_version}, transaction {conflict.winner_txn_id}",
        f"  rule:   {rule}, read version {conflict.read_version}",
        f"  advice: {next_step.get(conflict.advice, 'run it again')}",
    ]
    return "\n".join(lines)


def word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).replace("_", " ")


class NotPlainError(InputError):
    """The expression needs Spark; the text says why."""
