"""A MERGE that is built clause by clause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from laketx.foreign_calls import OF_MERGES, KnowsForeignCalls, by_name
from worker.arrow.write.merge_clauses import Clause, Settings
from worker.base.errors import InputError
from worker.commit.conflict_policies import OnConflict
from worker.commit.writes import WriteOptions, app_version_of

Answer = TypeVar("Answer")


class MergeBuilder(KnowsForeignCalls, Generic[Answer]):
    """A MERGE that is being built.

    Clauses are tried in the given order; the first clause whose condition is true applies.

    Conditions and values are SQL over `target.column` and `source.column`.
    """

    _foreign = by_name(OF_MERGES)

    def __init__(
        self, run: Callable[[tuple[Clause, ...], WriteOptions], Answer], clauses: tuple[Clause, ...] = ()
    ) -> None:
        self._run = run
        self._clauses = clauses

    def when_matched_update(
        self,
        values: Settings | None = None,
        *,
        condition: str | None = None,
    ) -> MergeBuilder[Answer]:
        """Updates matched rows; without values, every column that the source has."""
        return self._with("matched", "update", values, condition)

    def when_matched_delete(self, *, condition: str | None = None) -> MergeBuilder[Answer]:
        """Deletes matched rows."""
        return self._with("matched", "delete", None, condition)

    def when_not_matched_insert(
        self, values: Settings | None = None, *, condition: str | None = None
    ) -> MergeBuilder[Answer]:
        """Inserts source rows without a match; without values, every column of the source.

        Missing columns become their default, or NULL.
        """
        return self._with("not_matched", "insert", values, condition)

    def when_not_matched_by_source_update(
        self,
        values: Settings,
        *,
        condition: str | None = None,
    ) -> MergeBuilder[Answer]:
        """Updates rows of the table that no source row matches."""
        return self._with("by_source", "update", values, condition)

    def when_not_matched_by_source_delete(self, *, condition: str | None = None) -> MergeBuilder[Answer]:
        """Deletes rows of the table that no source row matches."""
        return self._with("by_source", "delete", None, condition)

    def execute(
        self,
        *,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Runs the merge.

        Raises InputError without a clause, and if several source rows match the same row of the table, unless the only
        clause for matched rows is a delete without a condition; ConflictError after a lost race.
        """
        if not self._clauses:
            raise InputError("MERGE_EMPTY", "a merge needs a clause")
        return self._run(self._clauses, WriteOptions(on_conflict, message, app_version_of(app_id, app_version)))

    def _with(self, when: str, action: str, settings: Settings | None, condition: str | None) -> MergeBuilder[Answer]:
        return MergeBuilder(self._run, (*self._clauses, Clause(when, action, settings, condition)))
