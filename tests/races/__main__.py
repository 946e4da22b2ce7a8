"""`python -m tests.races`: plays pairs of statements, and prints what went wrong; 0 if all is as the docs say.

python -m tests.races --seed 7 --pairs 500            so many of Spark's pairs, by chance
python -m tests.races --only "Spark SQL: INSERT"      those whose description has the words
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.races.courses import course_of_iceberg, course_with_spark, course_without_spark
from tests.races.pairs import Course, Result, sampled
from tests.spark.sessions import small_session

HEAD = "| door | statement | profile | pairs | wrong outcomes | wrong rows |"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.races", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which pairs")
    parser.add_argument("--pairs", type=int, default=500, help="how many pairs of Spark's doors")
    parser.add_argument("--arrow-pairs", type=int, default=2000, help="how many pairs without Spark")
    parser.add_argument("--iceberg-pairs", type=int, default=300, help="how many pairs of pyiceberg's")
    parser.add_argument("--only", default="", help="only pairs whose description has these words")
    asked = parser.parse_args(words)
    results: list[Result] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="laketx-races-") as folder:
        for name in ("arrow", "iceberg", "spark"):
            (Path(folder) / name).mkdir()
        if asked.arrow_pairs:
            with course_without_spark(Path(folder) / "arrow") as course:
                results += played(course, asked.seed, asked.arrow_pairs, asked.only)
        if asked.iceberg_pairs:
            with course_of_iceberg(Path(folder) / "iceberg") as course:
                results += played(course, asked.seed, asked.iceberg_pairs, asked.only)
        if asked.pairs:
            spark = small_session()
            spark.sparkContext.setLogLevel("OFF")
            with course_with_spark(Path(folder) / "spark", spark) as course:
                results += played(course, asked.seed, asked.pairs, asked.only)
            spark.stop()
    print("\n".join(table(results)))
    wrong = [result for result in results if not result.is_right]
    print(f"{len(results)} pairs, {len(wrong)} wrong, {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


def played(course: Course, seed: int, count: int, only: str = "") -> list[Result]:
    pairs = [pair for pair in course.pairs() if only in str(pair)]
    results = []
    for pair in sampled(pairs, seed, count):
        results.append(course.play(pair))
        if not results[-1].is_right:
            print(results[-1], flush=True)
    return results


def table(results: Iterable[Result]) -> list[str]:
    """Door, statement and profile, where something is wrong: pairs, wrong outcomes, wrong rows."""
    pairs: Counter[tuple[str, str, str]] = Counter()
    outcomes, rows = Counter(pairs), Counter(pairs)
    for result in results:
        cell = result.pair.door, result.pair.later.name, result.pair.profile
        pairs[cell] += 1
        outcomes[cell] += bool(result.wrong_outcome)
        rows[cell] += bool(result.wrong_rows)
    wrong = [
        f"| {' | '.join(cell)} | {pairs[cell]} | {outcomes[cell]} | {rows[cell]} |"
        for cell in sorted(pairs)
        if outcomes[cell] or rows[cell]
    ]
    return [HEAD, "| --- | --- | --- | --- | --- | --- |", *wrong] if wrong else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
