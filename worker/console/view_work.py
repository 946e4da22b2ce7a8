"""A materialized view refreshed or verified by hand, in the console's process, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from protos.laketx.v1 import catalog_pb2
from worker.base.lazy_modules import LazyModule
from worker.connection.table_view import TableView
from worker.console.rendering import path_text
from worker.console.visits import PageError, Visit
from worker.views.definition import QUERY

if TYPE_CHECKING:
    from worker.views import proof
    from worker.views import refresh as refreshes
else:
    proof = LazyModule("worker.views.proof")
    refreshes = LazyModule("worker.views.refresh")

AT_WORK: Final = threading.Lock()
IN_A_TERMINAL: Final = "In a terminal it is laketx view {word} {name}."


def refresh(visit: Visit) -> Response:
    """Brings a view up to its sources, as `laketx view refresh` does, with the caller's rights."""
    with _at_work(visit, "refresh") as view:
        done = refreshes.refresh(view)
        notice = "fresh" if done.kind == refreshes.NOTHING else "refreshed"
    return RedirectResponse(path_text("/views", notice=notice, view=view.table_id), 303)


def verify(visit: Visit) -> Response:
    """Compares a view's newest version with its query, computed anew; changes nothing."""
    with _at_work(visit, "verify") as view:
        notice = "holds" if proof.verify(view).holds else "differs"
    return RedirectResponse(path_text("/views", notice=notice, view=view.table_id), 303)


@contextmanager
def _at_work(visit: Visit, word: str) -> Iterator[TableView]:
    table = visit.table()
    if not table.properties.get(QUERY):
        raise PageError(404, "There is no such view", "It is a table, or it was dropped.")
    step = _step(table, word)
    if not visit.lake.warehouse:
        raise PageError(409, "The console was started without --warehouse, so it can't open files", step)
    if not AT_WORK.acquire(blocking=False):
        raise PageError(429, "Another view is being refreshed or verified here", f"Try again in a moment. {step}")
    try:
        yield TableView(visit.lake, table)
    except ImportError as error:
        raise PageError(409, f"The console lacks {error.name}: install laketx[views] beside it", step) from error
    finally:
        AT_WORK.release()


def _step(table: catalog_pb2.Table, word: str) -> str:
    return IN_A_TERMINAL.format(word=word, name=table.name)
