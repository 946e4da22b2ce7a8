"""Buckets as compaction planning sees them, written short or drawn at random."""

from dataclasses import replace

from hypothesis import strategies as st

from metaservice.core.compaction.plans import Ages, Bucket, PlanFile, PlanSet
from metaservice.core.compaction.policy import Options, Policy, RowOrder
from metaservice.core.table.model import Operation

MINOR, MAJOR, CLUSTER = Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER
KIB, MIB = 1 << 10, 1 << 20
TARGET = 128 * MIB
HOUR_US = 3_600_000_000
SIZES = st.sampled_from([KIB, 100 * KIB, MIB, 10 * MIB, 70 * MIB, 130 * MIB, 700 * MIB])


def policy(*, keyed: bool = True, by_partition: bool = False, minor: int = 3, order: bool = False) -> Policy:
    options = Options(TARGET, RowOrder.SORT, ("id",)) if order else Options(TARGET)
    ages = (HOUR_US,) * 6
    return Policy(True, keyed, by_partition, minor, 64 * MIB, 30, minor, ages, options, 8 << 30, 1_000, 4, 0, (), ())


def files_of(text: str) -> list[PlanFile]:
    """`b4:100 d5:1 a6:1m?`: kind, data version, size in MiB (default 1), `?` for out of order."""
    found = []
    for number, word in enumerate(text.split()):
        kind, rest = word[0], word[1:].rstrip("?")
        version, _, size = rest.partition(":")
        size_bytes = int(float(size or 1) * MIB)
        name = f"{word.rstrip('?')}/{number}"
        found.append(PlanFile(name, kind == "d", 10, size_bytes, int(version), int(version), not word.endswith("?")))
    return found


@st.composite
def buckets(draw: st.DrawFn, *, keyed: bool) -> Bucket:
    files = []
    for number in range(draw(st.integers(0, 14))):
        version = draw(st.integers(1, 12))
        size = draw(SIZES)
        is_delta = keyed and draw(st.booleans())
        inlined = (is_delta or not keyed) and size <= MIB and draw(st.booleans())
        file = PlanFile(f"f{number}", is_delta, size // KIB, size, version, version, draw(st.booleans()), inlined)
        files.append(file)
    sets = []
    if files and not keyed:
        for _ in range(draw(st.integers(0, 3))):
            touches = draw(st.lists(st.sampled_from([file.path for file in files]), max_size=3, unique=True))
            version = draw(st.integers(2, 13))
            sets.append(PlanSet(draw(st.integers(1, 10_000)), version, version, tuple(touches)))
    return Bucket("p", draw(st.integers(0, 1)) if keyed else 0, files, sets)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Policy, Ages, list[Bucket]]:
    keyed, by_partition = draw(st.booleans()), draw(st.booleans())
    found = policy(keyed=keyed, by_partition=by_partition, minor=draw(st.integers(2, 5)), order=draw(st.booleans()))
    if keyed:
        found = replace(found, options=Options(TARGET))
    found = replace(found, task_files=draw(st.integers(2, 12)), task_bytes=draw(SIZES) * 3)
    if draw(st.booleans()):
        found = found.wanting(draw(st.sampled_from((MINOR, MAJOR, CLUSTER))))
    ages = Ages(*draw(st.tuples(*[st.integers(-1, 13)] * 5)))
    return found, ages, [draw(buckets(keyed=keyed))._replace(bucket=place) for place in range(2 if keyed else 1)]
