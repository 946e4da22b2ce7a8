"""Branches: what each holds and changed, and a merge, which is shown before it is done."""

from __future__ import annotations

from typing import Final

from starlette.responses import RedirectResponse, Response

from metaservice.cli.branch import refusal_of, refusals_of, what_changed, what_happened
from metaservice.client import DeniedError, MetaServiceError
from metaservice.client.branch_diff import diff_branch
from metaservice.client.branch_holds import branch_holds
from worker.console.branch_graph import draw_branches
from worker.console.rendering import path_text
from worker.console.visits import LIVE_SERVICE, PageError, Shown, Visit, number_of, taken

BRANCHES_MAX: Final = 200
TABLES_SHOWN: Final = 500
DAY_MS: Final = 86_400_000
DAYS_MAX: Final = 366
HAS_CHILDREN: Final = "BRANCH_HAS_CHILDREN"


def show_all(visit: Visit) -> Shown:
    branches, has_more = taken(visit.client.list_branches(), BRANCHES_MAX)
    facts = {
        "branches": branches,
        "has_more": has_more,
        "graph": draw_branches(branches, visit.now_us),
        "now_us": visit.now_us,
    }
    return Shown("branches.html", facts, live=LIVE_SERVICE)


def show(visit: Visit) -> Shown:
    """A branch, and what a merge would do now. The preview changes nothing."""
    answer = visit.client.get_branch(visit.part("name"))
    listed = visit.client.list_table_page(branch=answer.branch.name, page_size=TABLES_SHOWN)
    preview, hindrance = None, ""
    if visit.text("preview"):
        try:
            preview = visit.client.merge_branch(answer.branch.name, validate_only=True)
        except DeniedError:
            hindrance = "You have no right to write to the parent's tables, so you can't merge."
        except MetaServiceError as error:
            if error.reason != HAS_CHILDREN:
                raise
            hindrance = f"It can't be merged now: {error}."
    held = branch_holds(visit.client, answer) if visit.text("held") else None
    facts = {
        "branch": answer.branch,
        "diffs": diff_branch(visit.client, answer.branch.name) if visit.text("diff") else None,
        "held": held,
        "held_bytes": sum(table.size_bytes for table in held or ()),
        "tables": answer.tables[:TABLES_SHOWN],
        "names": answer.names,
        "what_changed": what_changed,
        "others": [table for table in listed.tables if not table.table_id],
        "has_more": bool(listed.next_page_token),
        "left_out": max(len(answer.tables) - TABLES_SHOWN, 0),
        "changed": sum(what_happened(table) != "unchanged" for table in answer.tables),
        "preview": preview,
        "hindrance": hindrance,
        "merged": visit.text("merged"),
        "refreshed": visit.text("refreshed"),
        "what_happened": what_happened,
        "refusal_of": refusal_of,
        "now_us": visit.now_us,
    }
    return Shown("branch.html", facts, live=LIVE_SERVICE)


def create(visit: Visit) -> Response:
    """Makes a branch of everything as it is now."""
    days = number_of("The number of days", visit.form.get("days", "").strip()) or 0
    name, comment = visit.form.get("name", "").strip(), visit.form.get("comment", "").strip()
    made = visit.client.create_branch(name, keep_ms=min(days, DAYS_MAX) * DAY_MS, comment=comment)
    return RedirectResponse(path_text(f"/branches/{made.name}"), 303)


def drop(visit: Visit) -> Response:
    """Ends the branch with what was committed on it."""
    name = visit.part("name")
    if visit.form.get("confirm") != name:
        raise PageError(400, "The drop was not confirmed", "Type the name of the branch into the field.")
    visit.client.drop_branch(name)
    return RedirectResponse(path_text("/branches"), 303)


def refresh(visit: Visit) -> Response:
    """Moves the branch's fork point to now, with its commits on top; a refresh that is refused changes nothing."""
    name = visit.part("name")
    answer = visit.client.refresh_branch(name)
    if not answer.refreshed:
        raise unchanged("Not refreshed", refusals_of(answer.tables, answer.names))
    return RedirectResponse(path_text(f"/branches/{name}", refreshed="yes"), 303)


def merge(visit: Visit) -> Response | Shown:
    """Merges the branch, and keeps or ends it; a merge that is refused changes nothing."""
    name = visit.part("name")
    if visit.form.get("confirm") != name:
        raise PageError(400, "The merge was not confirmed", "Type the name of the branch into the field.")
    keep = visit.form.get("keep") == "yes"
    answer = visit.client.merge_branch(name, keep=keep)
    if not answer.merged:
        raise unchanged("Not merged", refusals_of(answer.tables, answer.names))
    target = path_text(f"/branches/{name}", merged="yes") if keep else path_text("/branches")
    return RedirectResponse(target, 303)


def unchanged(title: str, lost: str) -> PageError:
    return PageError(409, f"{title}: {lost}", "Nothing was changed. Look at the preview of the merge.")
