"""Checks of `laketx branch merge`: queries on a branch, by DuckDB."""

from __future__ import annotations

from laketx.branch import Branch
from laketx.lake import Lake
from laketx.merge_checks import run_query
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.output import Session
from worker.services.commands import command_errors, warehouse_of


def run_check(session: Session, branch: str, warehouse: str | None, query: str, table: str = "") -> None:
    """Fails if the query does not answer true; `table`: that whose property has it."""
    with command_errors(), Lake(session.connect(), warehouse_of(session, warehouse), None) as lake:
        rows = Branch(lake, lake.client.get_branch(branch).branch).rows
        result = run_query(lake, branch, query, rows)
    if not result.holds:
        message = f"{query} answered {result.answer}"
        facts = {"branch": branch, "table": table} if table else {"branch": branch}
        hint = f"look at the branch, correct it and merge again, or drop it: laketx branch drop {branch}"
        raise CommandError(Exit.CONFLICT, "CHECK_FAILED", message, facts, hint)
