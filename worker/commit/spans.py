"""Spans of a write and of the staging of its files; nothing where spans are off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from metaservice.shared import telemetry

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span

    from protos.laketx.v1 import catalog_pb2
    from worker.commit.stages import Stage


class Done(Protocol):
    """What is said of a commit."""

    @property
    def txn_id(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def attempts(self) -> int: ...


def write() -> AbstractContextManager[Span | None]:
    return telemetry.span("laketx.write")


def note_plan(planned: Sequence[tuple[str, str]]) -> None:
    """Tells the write's span the operations and the tables."""
    if telemetry.tracer() is None:
        return
    from opentelemetry import trace  # noqa: PLC0415 - imported only where spans are on

    operations, tables = (",".join(dict.fromkeys(each)) for each in zip(*planned, strict=True))
    _note(trace.get_current_span(), {"operation": operations, "table": tables})


def note_commits(span: Span | None, commits: Sequence[Done]) -> None:
    if span is not None and commits:
        first = commits[0]
        facts: dict[str, str | int] = {"outcome": "OK", "txn_id": first.txn_id, "version": first.version}
        facts["attempts"] = first.attempts
        span.set_attributes(telemetry.named(facts))


@contextmanager
def stage(operation: str, meta: catalog_pb2.Table, stage: Stage) -> Iterator[None]:
    """The staging of one table's files. What was staged is noted in the write's span too."""
    if telemetry.tracer() is None:
        yield
        return
    from opentelemetry import trace  # noqa: PLC0415 - imported only where spans are on

    write = trace.get_current_span()
    facts: dict[str, str | int] = {
        "table": meta.name,
        "table_id": meta.table_id,
        "operation": operation,
        "txn_id": stage.txn_id,
    }
    with telemetry.span("laketx.stage", facts) as span:
        yield
        staged = stage.staged
        counted: dict[str, str | int] = {
            "rows": staged.rows(),
            "files": len(staged.files) + len(staged.delete_sets),
        }
        _note(span, counted)
        _note(write, {"txn_id": stage.txn_id, **counted})


def _note(span: Any, facts: dict[str, str | int]) -> None:
    if span is not None:
        span.set_attributes(telemetry.named(facts))
