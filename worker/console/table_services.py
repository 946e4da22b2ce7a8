"""Table services: the tasks that wait, run and ended, and tasks that somebody starts or cancels by hand."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from starlette.responses import RedirectResponse, Response

from metaservice.cli.compaction import OPERATIONS, what_of
from metaservice.cli.find import TABLE_ID
from metaservice.client import MetaServiceError
from protos.laketx.v1 import maintenance_pb2 as pb
from worker.console.rendering import path_text
from worker.console.service_runs import runs_of_table, runs_of_tasks
from worker.console.visits import LIVE_SERVICE, PageError, Shown, Visit, taken

ACTIVE_MAX: Final = 200
ENDED_MAX: Final = 10_000  # as many as the service remembers
ENDED_PAGE: Final = 1_000
ENDED_SHOWN: Final = 50
ACTIVE: Final = (pb.TASK_STATE_QUEUED, pb.TASK_STATE_CLAIMED, pb.TASK_STATE_FAILED)
ENDED: Final = (pb.TASK_STATE_DONE, pb.TASK_STATE_CANCELLED)


def show(visit: Visit) -> Shown:
    client, table_id = visit.client, visit.text("table")
    if table_id and not TABLE_ID.fullmatch(table_id):
        raise PageError(400, "The table's id is not one", "Choose the table on the page Tables.")
    table = client.get_table(table_id=table_id) if table_id else None
    pages = client.list_task_pages(table_id=table_id, states=ACTIVE, page_size=ACTIVE_MAX)
    first = next(pages)
    active, has_more = taken((task for page in (first, *islice(pages, 1)) for task in page.tasks), ACTIVE_MAX)
    listed = client.list_tasks(table_id=table_id, states=ENDED, page_size=ENDED_PAGE)
    ended = list(reversed(deque(islice(listed, ENDED_MAX), maxlen=ENDED_SHOWN)))  # they come oldest first
    plan = next(client.plan_maintenance(table_id)) if table_id else None
    facts = {
        "table": table,
        "totals": first,
        "active": active,
        "has_more": has_more,
        "ended": ended,
        "history": runs_of_table(client, table) if table is not None else runs_of_tasks(client, ended),
        "plan": plan,
        "status": client.get_status(),
        "what_of": what_of,
        "kinds": list(OPERATIONS),
        "files_of": lambda task: sum(group.files for group in task.groups),
        "bytes_of": lambda task: sum(group.bytes for group in task.groups),
        "notice": visit.text("notice"),
        "now_us": visit.now_us,
        "tab": "services",
    }
    return Shown("services.html", facts, live=LIVE_SERVICE)


def request(visit: Visit) -> Response:
    """Queues tasks for a table regardless of its policy."""
    table, kind = visit.table(), visit.form.get("kind", "")
    if kind not in OPERATIONS:
        raise PageError(400, "There is no such work", f"It is one of {', '.join(OPERATIONS)}.")
    answer = visit.client.request_tasks(table.table_id, OPERATIONS[kind])
    notice = "queued" if answer.tasks else "nothing"
    return RedirectResponse(path_text("/services", table=table.table_id, notice=notice), 303)


def cancel(visit: Visit) -> Response:
    task_id = visit.part("task_id")
    if not TABLE_ID.fullmatch(task_id):
        raise PageError(404, "There is no such task", "The list shows the tasks that there are.")
    try:
        task = visit.client.cancel_task(task_id, reason="cancelled in the console")
    except MetaServiceError as error:
        if error.reason == "TASK_UNKNOWN":
            raise PageError(404, "There is no such task", "The list shows the tasks that there are.") from error
        raise
    return RedirectResponse(path_text("/services", table=task.table_id, notice="cancelled"), 303)
