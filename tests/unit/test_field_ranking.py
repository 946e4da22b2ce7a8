"""Who is first in a row of `make bench-field`, and whether LakeTX reaches its goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from benchmarks.field.digest import digest
from benchmarks.field.model import with_upserted, without_deleted
from benchmarks.field.ranking import NEAR, SMALL, Row
from benchmarks.field.system import LAKETX


def row(runs: Mapping[str, Sequence[float]], **others: Any) -> Row:
    return Row("work", "ms", runs, **others)


@pytest.mark.parametrize(
    ("ours", "others", "verdict"),
    [
        (100.0, {"deltalake": 200.0}, "holds"),
        (102.9, {"deltalake": 100.0, "pyiceberg": 400.0}, "holds"),
        (103.1, {"deltalake": 100.0, "pyiceberg": 400.0}, "falls short"),
        (100.0, {}, ""),
    ],
)
def test_a_time_is_first_or_near_the_first(ours: float, others: dict[str, float], verdict: str) -> None:
    measured = row({LAKETX: [ours], **{name: [figure] for name, figure in others.items()}})
    assert measured.verdict == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(1_000.0, "holds"), (999.0, "falls short")])
def test_small_commits_are_ten_times_the_best_other(ours: float, verdict: str) -> None:
    runs = {LAKETX: [ours], "deltalake": [20.0, 100.0, 300.0], "pyiceberg": [9.0]}
    measured = row(runs, better="more", times_best=SMALL)
    assert measured.verdict == verdict
    assert measured.target == 1_000
    assert measured.lead.startswith(f"{LAKETX}, ")
    assert measured.lead.endswith(" times deltalake")


def test_who_lost_rows_is_not_ranked() -> None:
    runs = {LAKETX: [50.0], "deltalake": [90.0], "pyiceberg": [10.0]}
    measured = row(runs, better="more", unranked={"deltalake": "3 lost, 0 doubled"})
    assert [name for name, _ in measured.ranked] == [LAKETX, "pyiceberg"]
    assert measured.target == 10.0 / NEAR


def test_what_was_counted_is_said_by_system() -> None:
    clean = {"lost": 0, "doubled": 0, "refused": 0, "given_up": 0}
    counts = {LAKETX: clean, "deltalake": clean | {"refused": 12, "given_up": 1}}
    measured = row({LAKETX: [1.0], "deltalake": [2.0]}, counts=counts)
    assert (
        measured.counted == "deltalake 12 refused, 1 given up; the others: nothing lost, doubled, refused or given up"
    )


def test_a_digest_knows_neither_order_nor_types_but_every_value() -> None:
    model = with_upserted(1_000, 4)
    shuffled = model.slice(700).cast(model.schema).sort_by([("amount", "descending")])
    assert model.num_rows == 1_000
    assert digest(model) == digest(model.sort_by("pad").combine_chunks())
    assert len({digest(rows) for rows in (model, model.slice(1), shuffled, without_deleted(model, 4))}) == 4
