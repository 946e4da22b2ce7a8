"""The works: each starts the systems, has them do the same, and returns rows of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.arrow_data import rows
from benchmarks.field.child import ROWS_A_PART
from benchmarks.field.digest import digest
from benchmarks.field.model import whole, with_upserted, without_deleted
from benchmarks.field.ranking import COUNTED, SMALL, Row
from benchmarks.field.system import LAKETX
from benchmarks.field.team import PATIENCE_S, Team
from benchmarks.field.writers import COUNTERS, ROWS_A_COMMIT, Work
from benchmarks.frame import scale, scaled

LARGE: Final = 10_000_000
ROWS: Final = 1_000_000
FILES: Final = 10_000
PARTS: Final = 100
SMALL_COMMITS: Final = (1_000, 10_000)
WRITERS: Final = (1, 16)
WINDOW_S: Final = 5.0
WARM_UP_S: Final = 1.0
RUNS: Final = 5
WRITES: Final = 3  # runs of what changes the table
ONE_COLUMN: Final = ["amount"]

Start = Callable[[], AbstractContextManager[Team]]


def commits(start: Start) -> Iterator[Row]:
    """Ten rows a commit, blind."""
    with start() as systems:
        for writers in WRITERS:
            named = f"commits of {ROWS_A_COMMIT} rows, {writers} writer{'s' if writers > 1 else ''}"
            yield _written(systems, named, "commits", writers, "commits/s", SMALL)


def conflicts(start: Start) -> Iterator[Row]:
    """Writers that add 1 to the same rows."""
    with start() as systems:
        named = f"conflicts: {WRITERS[-1]} writers add 1 to {COUNTERS} rows"
        yield _written(systems, named, "counters", WRITERS[-1], "updates/s", None)


def reads(start: Start) -> Iterator[Row]:
    """A large table, clean and with one per cent of its rows deleted."""
    count = scaled(LARGE)
    model = whole(count)
    with start() as systems:
        systems.each("fill", table="t", kind="rows", count=count)
        clean = systems.each("head", table="t")
        yield _read(systems, f"read {count:,} rows", digest(model))
        yield _read(systems, f"read one column of {count:,} rows", digest(model.select(ONE_COLUMN)), columns=ONE_COLUMN)
        yield _deleted(systems, f"delete 1 % of {count:,} rows", "t")
        left = without_deleted(model, WRITES + 1)
        yield _read(systems, f"read {count:,} rows, {WRITES + 1} % deleted", digest(left))
        named = f"read one column of {count:,} rows, {WRITES + 1} % deleted"
        yield _read(systems, named, digest(left.select(ONE_COLUMN)), columns=ONE_COLUMN)
        del left
        yield _read(systems, f"read {count:,} rows as they were before the deletes", digest(model), versions=clean)


def changes(start: Start) -> Iterator[Row]:
    """Upserts and deletes of one per cent."""
    count = scaled(ROWS)
    with start() as systems:
        systems.each("fill", table="d", kind="rows", count=count)
        deleted = _deleted(systems, f"delete 1 % of {count:,} rows", "d")
        wrong = systems.compare(digest(without_deleted(whole(count), WRITES + 1)), lambda _: {"table": "d"})
        yield _with(deleted, wrong)
        systems.each("fill", table="u", kind="keyed", count=count)
        times = systems.turns(
            lambda _, number: ("upsert", {"table": "u", "count": count, "number": number}), runs=WRITES
        )
        expected = digest(with_upserted(count, WRITES + 1))
        wrong = systems.compare(expected, lambda _: {"table": "u"})
        yield _row(systems, f"upsert 1 % of {count:,} rows", times, wrong)
        yield _read(systems, f"read {count:,} rows after {WRITES + 1} upserts of 1 %", expected, table="u")


def files(start: Start) -> Iterator[Row]:
    """Plans of a table of many files."""
    made = max(1, round(scaled(FILES) / PARTS))
    count = made * PARTS
    ids = np.arange(count * ROWS_A_PART)
    with start() as systems:
        systems.each("fill_parts", table="f", commits=made, parts=PARTS)
        listed = systems.each("files", table="f")
        wrong = {name: f"lists {number} files" for name, number in listed.items() if number != count}
        if LAKETX in wrong:
            raise RuntimeError(f"LakeTX {wrong[LAKETX]} instead of {count}")
        times = systems.turns(lambda _, __: ("plan", {"table": "f"}), runs=RUNS)
        yield _row(systems, f"list {count:,} files", times, wrong)
        row_id = len(ids) * 2 // 3
        expected = digest(pa.Table.from_batches([rows(ids[row_id : row_id + 1])]))
        yield _read(systems, f"read one row by its id of {count:,} files", expected, table="f", row_id=row_id)


def small(start: Start) -> Iterator[Row]:
    """Tables that small commits made, and nothing compacted."""
    for commits_made in SMALL_COMMITS:
        count = scaled(commits_made)
        with start() as systems:
            arguments = {"table": "s", "count": count, "patience_s": PATIENCE_S * 0.9}
            for name, number in systems.each("fill_by_commits", **arguments).items():
                if number < count:
                    systems.leave_out(name, f"made {number:,} of the commits in {PATIENCE_S * 0.9:.0f} s")
            expected = digest(whole(count * ROWS_A_COMMIT))
            yield _read(systems, f"read {count:,} commits of {ROWS_A_COMMIT} rows", expected, table="s")


def _read(
    systems: Team, work: str, expected: str, table: str = "t", versions: Mapping[str, int] | None = None, **what: Any
) -> Row:
    def arguments(name: str) -> dict[str, Any]:
        return {"table": table, **what, **({} if versions is None else {"version": versions[name]})}

    wrong = systems.compare(expected, arguments)  # which warms up, too
    times = systems.turns(lambda name, _: ("read", arguments(name)), runs=RUNS)
    return _row(systems, work, times, wrong)


def _deleted(systems: Team, work: str, table: str) -> Row:
    times = systems.turns(lambda _, number: ("delete", {"table": table, "number": number}), runs=WRITES)
    return _row(systems, work, times, {})


def _row(systems: Team, work: str, times: Mapping[str, list[float]], wrong: Mapping[str, str]) -> Row:
    """In milliseconds."""
    runs = {name: [1_000 * seconds for seconds in listed] for name, listed in times.items()}
    return Row(work, "ms", runs, unranked={**systems.out, **wrong})


def _with(row: Row, wrong: Mapping[str, str]) -> Row:
    return Row(row.work, row.unit, row.runs, unranked={**row.unranked, **wrong})


def _written(systems: Team, work: str, kind: Work, writers: int, unit: str, times_best: float | None) -> Row:
    window_s = max(2.0, WINDOW_S * scale())

    def request(_: str, number: int) -> tuple[str, dict[str, Any]]:
        arguments = {"table": f"{kind}_{writers}_{number}", "work": kind, "writers": writers}
        return "write", {**arguments, "warm_up_s": WARM_UP_S, "window_s": window_s}

    answers = systems.turns(request, runs=scaled(WRITES), warm_ups=0)
    counts = {
        name: {word: sum(answer[word] for answer in listed) for word in COUNTED} for name, listed in answers.items()
    }
    wrong = {
        name: f"{count['lost']} lost, {count['doubled']} doubled"
        for name, count in counts.items()
        if count["lost"] or count["doubled"]
    }
    if LAKETX in wrong:
        raise RuntimeError(f"LakeTX: {wrong[LAKETX]}")
    idle = {
        name: "committed nothing in a window"
        for name, listed in answers.items()
        if name != LAKETX and not min(answer["per_s"] for answer in listed)
    }
    goal = {} if times_best is None else {"times_best": times_best}
    return Row(
        work,
        unit,
        {name: [answer["per_s"] for answer in listed] for name, listed in answers.items()},
        better="more",
        unranked={**systems.out, **idle, **wrong},
        counts=counts,
        **goal,
    )


WORKS: Final[Mapping[str, Callable[[Start], Iterator[Row]]]] = {
    work.__name__: work for work in (commits, conflicts, reads, changes, files, small)
}
