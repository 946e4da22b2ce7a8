"""Worthwhile compactions in a bucket of a primary-key table."""

from __future__ import annotations

from metaservice.core.compaction.plans import (
    MAJOR,
    SETTLE_FILES,
    SMALL_BYTES,
    BucketPlan,
    GroupPlan,
    Look,
    PlanFile,
    Wait,
    due_inlined,
    flat,
    is_much,
    is_old,
    oldest_of,
    percent,
    rows_of,
    segments_of,
    size_of,
)
from metaservice.core.compaction.policy import Age


def plan_keyed(look: Look) -> BucketPlan:
    waits: list[Wait] = []
    minor = _keyed_minor(look, waits)
    major = _keyed_major(look, minor, waits)
    cluster = _keyed_cluster(look, waits)
    return BucketPlan(major, minor, cluster, look.last_added(), tuple(waits))


def _keyed_minor(look: Look, waits: list[Wait]) -> GroupPlan | None:
    def is_run(group: list[PlanFile]) -> bool:
        return all(file.is_delta for file in group) and not look.is_full(size_of(group))

    best: GroupPlan | None = None
    for segment in segments_of(look, is_run):
        run = _run_of(look, segment, waits)
        if run is not None and (best is None or run.gain.files_less > best.gain.files_less):
            best = run
    return best or _inlined_run(look, waits)


def _inlined_run(look: Look, waits: list[Wait]) -> GroupPlan | None:
    """The newest inlined files of age, with the deltas between them."""
    due = {file.path for file in due_inlined(look, waits)}
    for segment in reversed(segments_of(look, lambda group: all(file.is_delta for file in group))):
        places = [at for at, group in enumerate(segment) if any(file.path in due for file in group)]
        if places:
            files = _within_bounds(look, segment[places[0] : places[-1] + 1])
            if files:
                return look.group(files, f"{sum(file.inlined for file in files)} inlined files of age", outputs=1)
    return None


def _run_of(look: Look, segment: list[list[PlanFile]], waits: list[Wait]) -> GroupPlan | None:
    """The part of a sequence of deltas that is worth merging into one file."""
    policy, everything = look.policy, flat(segment)
    if len(everything) < 2:
        return None
    newest, left = _newest(segment, settled=False), _newest(segment, settled=True)
    run, reason = segment, f"{len(everything)} delta files"
    if sum(map(len, newest)) >= policy.minor_files:
        run, reason = newest, f"{sum(map(len, newest))} delta files"
    elif len(everything) >= policy.minor_files:
        pass
    elif sum(map(len, newest)) >= 2 and size_of(flat(newest)) >= policy.minor_bytes:
        run, reason = newest, f"{size_of(flat(newest))} bytes of delta files"
    elif is_old(look, Age.MINOR, oldest_of(everything)):
        reason = f"{len(everything)} delta files, the oldest of age"
    elif look.is_settled and len(everything) > SETTLE_FILES and len(flat(left)) > 1:
        run, reason = left, f"{len(flat(left))} delta files, and no recent writes"
    else:
        waits.append((Age.MINOR, oldest_of(everything)))
        if len(everything) > SETTLE_FILES:
            waits += look.settling()
        return None
    files = _within_bounds(look, run)
    return look.group(files, reason, outputs=1) if len(files) > 1 else None


def _newest(segment: list[list[PlanFile]], *, settled: bool) -> list[list[PlanFile]]:
    """The newest files, as long as older ones are not much larger than all newer ones together."""
    taken: list[list[PlanFile]] = []
    size = 0
    for group in reversed(segment):
        group_bytes = size_of(group)
        if taken and is_much(group_bytes, size, settled=settled):
            break
        taken.append(group)
        size += group_bytes
    return taken[::-1]


def _within_bounds(look: Look, run: list[list[PlanFile]]) -> list[PlanFile]:
    """The newest of a run, in whole data versions; empty if even the newest is too much for a task."""
    taken: list[PlanFile] = []
    size = 0
    for group in reversed(run):
        size += size_of(group)
        if not look.has_room(len(taken) + len(group), size, whole=len(taken) < 2):
            break
        taken += group
    return taken


def _keyed_major(look: Look, minor: GroupPlan | None, waits: list[Wait]) -> GroupPlan | None:
    policy, files = look.policy, look.bucket.files
    deltas = [file for file in files if file.is_delta]
    if not look.fits(files, whole=True):
        return None
    if not deltas:
        merges = look.only is MAJOR and len(files) > look.outputs(size_of(files))
        return look.group(files, f"{len(files)} base files") if merges else None
    bases = [file for file in files if not file.is_delta]
    share = max(percent(size_of(deltas), size_of(bases)), percent(rows_of(deltas), rows_of(bases)))
    rows = rows_of(deltas)
    due = minor is not None or len(deltas) >= policy.minor_files or size_of(deltas) >= policy.minor_bytes
    if due and share >= policy.major_percent:
        of_base = f"{share} % of the base files" if bases else "no base file"
        return look.group(files, f"{len(deltas)} delta files, {of_base}", rows)
    if is_old(look, Age.MAJOR, oldest_of(deltas)):
        return look.group(files, f"{len(deltas)} delta files, the oldest of age", rows)
    waits.append((Age.MAJOR, oldest_of(deltas)))
    small = [file for file in files if file.is_delta or look.is_small(file)]
    if not is_worth_settling(len(files), size_of(small)):
        return None
    if look.is_settled and not is_much(size_of(bases), size_of(deltas), settled=True):
        return look.group(files, f"{len(deltas)} delta files, and no recent writes", rows)
    waits += look.settling()
    return None


def is_worth_settling(files: int, small_bytes: int) -> bool:
    """Whether merging deltas and small base files would be noticeable."""
    return files > SETTLE_FILES or small_bytes >= SMALL_BYTES


def _keyed_cluster(look: Look, waits: list[Wait]) -> GroupPlan | None:
    def is_base(group: list[PlanFile]) -> bool:
        return not any(file.is_delta for file in group)

    for segment in segments_of(look, is_base):
        astray = [file for file in flat(segment) if not file.ordered]
        chosen = astray + [file for file in flat(segment) if file.ordered and look.is_small(file)]
        if not astray and len(chosen) < 2:
            continue
        versions = {file.data_version for file in chosen}
        low, high = min(versions), max(versions)
        run = [file for file in flat(segment) if low <= file.data_version <= high]
        if (not astray and len(run) <= look.outputs(size_of(run))) or not look.fits(run, whole=low == high):
            continue
        if len(chosen) >= look.policy.cluster_files or is_old(look, Age.CLUSTER, oldest_of(chosen)):
            what = f"{len(astray)} base files out of order" if astray else f"{len(chosen)} small base files"
            return look.group(run, what)
        waits.append((Age.CLUSTER, oldest_of(chosen)))
    return None
