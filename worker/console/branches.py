"""Branches: what each holds and changed, and a merge, which is shown before it is done."""

from __future__ import annotations

from typing import Final

from starlette.responses import RedirectResponse, Response

from metaservice.cli.branch import refusal_of, what_happened
from metaservice.client import DeniedError
from worker.console.rendering import path_text
from worker.console.visits import PageError, Shown, Visit, taken

BRANCHES_MAX: Final = 200
TABLES_SHOWN: Final = 500


def show_all(visit: Visit) -> Shown:
    branches, has_more = taken(visit.client.list_branches(), BRANCHES_MAX)
    facts = {"branches": branches, "has_more": has_more, "now_us": visit.now_us}
    return Shown("branches.html", facts, live="/live/service")


def show(visit: Visit) -> Shown:
    """A branch, and what a merge would do now. The preview changes nothing."""
    answer = visit.client.get_branch(visit.part("name"))
    preview, denied = None, False
    if visit.text("preview"):
        try:
            preview = visit.client.merge_branch(answer.branch.name, validate_only=True)
        except DeniedError:
            denied = True
    facts = {
        "branch": answer.branch,
        "tables": answer.tables[:TABLES_SHOWN],
        "left_out": max(len(answer.tables) - TABLES_SHOWN, 0),
        "changed": sum(what_happened(table) != "unchanged" for table in answer.tables),
        "preview": preview,
        "denied": denied,
        "merged": visit.text("merged"),
        "what_happened": what_happened,
        "refusal_of": refusal_of,
        "now_us": visit.now_us,
    }
    return Shown("branch.html", facts)


def merge(visit: Visit) -> Response | Shown:
    """Merges the branch, and keeps or ends it; a merge that is refused changes nothing."""
    name = visit.part("name")
    if visit.form.get("confirm") != name:
        raise PageError(400, "The merge was not confirmed", "Type the name of the branch into the field.")
    keep = visit.form.get("keep") == "yes"
    answer = visit.client.merge_branch(name, keep=keep)
    if not answer.merged:
        lost = "; ".join(f"{table.name}: {refusal_of(table)}" for table in answer.tables if refusal_of(table))
        raise PageError(409, f"Not merged: {lost}", "Nothing was changed. Look at the preview of the merge.")
    target = path_text(f"/branches/{name}", merged="yes") if keep else path_text("/branches")
    return RedirectResponse(target, 303)
