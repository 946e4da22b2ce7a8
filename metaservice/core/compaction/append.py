"""Worthwhile compactions in a partition of an append table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from metaservice.core.compaction.plans import (
    CLUSTER,
    MAJOR,
    MINOR,
    SETTLE_FILES,
    Bucket,
    BucketPlan,
    GroupPlan,
    Look,
    PlanFile,
    Wait,
    due_inlined,
    is_much,
    is_old,
    oldest_of,
    percent,
    rows_of,
    size_of,
)
from metaservice.core.compaction.policy import Age


def plan_append(look: Look) -> BucketPlan:
    waits: list[Wait] = []
    major, minor = _append_hidden(look, waits)
    if look.policy.options.order and look.only is not MINOR:
        cluster = _append_cluster(look, waits)
    else:
        cluster = None
        minor = minor or _append_small(look, waits) or _append_inlined(look, waits)
        if look.only is CLUSTER and minor is not None:
            minor, cluster = None, minor
    return BucketPlan(major, minor, cluster, look.last_added(), tuple(waits))


def hidden_rows(bucket: Bucket) -> dict[str, float]:
    """Return the number of hidden rows of each file; a delete set's rows are spread over the files that it touches."""
    hidden: dict[str, float] = {}
    by_path = {file.path: file for file in bucket.files}
    for delete_set in bucket.sets:
        named = (
            [by_path[path] for path in delete_set.touches if path in by_path] if delete_set.touches else bucket.files
        )
        touched = [file for file in named if file.data_version < delete_set.data_version and file.rows]
        rows = rows_of(touched)
        for file in touched:
            hidden[file.path] = min(hidden.get(file.path, 0.0) + delete_set.rows * file.rows / rows, file.rows)
    return hidden


def _append_hidden(look: Look, waits: list[Wait]) -> tuple[GroupPlan | None, GroupPlan | None]:
    """Plan a major if many rows are hidden, and a minor of the files with hidden rows for when a major can't run."""
    policy, files = look.policy, look.bucket.files
    hidden = hidden_rows(look.bucket)
    gone = int(sum(hidden.values()))
    if not hidden:
        is_worth = look.only is MAJOR and len(files) > look.outputs(size_of(files)) and look.fits(files, whole=True)
        return (look.group(files, f"{len(files)} files") if is_worth else None), None
    share = percent(gone, rows_of(files))
    oldest = min(delete_set.added for delete_set in look.bucket.sets)
    if share >= policy.major_percent:
        reason = f"{share} % of the rows are hidden"
    elif is_old(look, Age.MAJOR, oldest):
        reason = f"{gone} hidden rows, the oldest of age"
    elif look.is_settled and not is_much(size_of(file for file in files if file.path in hidden), 0, settled=True):
        reason = f"{gone} hidden rows, and no recent writes"
    else:
        waits += [(Age.MAJOR, oldest), *look.settling()]
        return None, None
    major = look.group(files, reason, gone) if look.fits(files, whole=look.only is MAJOR) else None
    touched = sorted((file for file in files if file.path in hidden), key=lambda file: -hidden[file.path] / file.rows)
    if look.only is MINOR:
        touched += [file for file in files if file.inlined and file.path not in hidden]
    taken = _first_within(look, touched)
    minor = look.group(taken, reason, int(sum(hidden.get(file.path, 0) for file in taken))) if taken else None
    return major, minor


def _first_within(look: Look, files: Iterable[PlanFile]) -> list[PlanFile]:
    taken: list[PlanFile] = []
    size = 0
    for file in files:
        size += file.size_bytes
        if not look.has_room(len(taken) + 1, size, whole=not taken):
            break
        taken.append(file)
    return taken


def _append_small(look: Look, waits: list[Wait]) -> GroupPlan | None:
    policy = look.policy
    small = sorted((file for file in look.bucket.files if look.is_small(file)), key=attrgetter("size_bytes", "path"))
    if len(small) < 2:
        return None
    largest, left = _widest(small, settled=False), _widest(small, settled=True)
    if len(largest) >= policy.minor_files or (len(largest) > 1 and size_of(largest) >= policy.minor_bytes):
        chosen, reason = largest, f"{len(largest)} small files"
    elif len(small) >= 2 * policy.minor_files:
        chosen, reason = small, f"{len(small)} small files"
    elif is_old(look, Age.MINOR, oldest_of(small)):
        chosen, reason = small, f"{len(small)} small files, the oldest of age"
    elif look.is_settled and len(small) > SETTLE_FILES and len(left) > look.outputs(size_of(left)):
        chosen, reason = left, f"{len(left)} small files, and no recent writes"
    else:
        waits.append((Age.MINOR, oldest_of(small)))
        if len(small) > SETTLE_FILES:
            waits += look.settling()
        return None
    taken = _first_within(look, chosen)
    return look.group(taken, reason) if len(taken) > look.outputs(size_of(taken)) else None


def _append_inlined(look: Look, waits: list[Wait]) -> GroupPlan | None:
    taken = _first_within(look, due_inlined(look, waits))
    return look.group(taken, f"{len(taken)} inlined files of age") if taken else None


def _widest(small: Sequence[PlanFile], *, settled: bool) -> list[PlanFile]:
    """The most files of similar size, so that small data isn't rewritten repeatedly with large data."""
    tiers: list[list[PlanFile]] = [[]]
    size = 0
    for file in small:
        if tiers[-1] and is_much(file.size_bytes, size, settled=settled):
            tiers.append([])
            size = 0
        tiers[-1].append(file)
        size += file.size_bytes
    return max(tiers, key=len)


def _append_cluster(look: Look, waits: list[Wait]) -> GroupPlan | None:
    """Files out of order, and small ones with them."""
    files = look.bucket.files
    astray = [file for file in files if not file.ordered]
    small = [file for file in files if file.ordered and look.is_small(file)]
    chosen = sorted(astray, key=attrgetter("added", "path")) + sorted(small, key=attrgetter("size_bytes", "path"))
    if not astray and len(small) < 2:
        return None
    reason = f"{len(astray)} files out of order" if astray else f"{len(small)} small files"
    if max(len(astray), len(small)) < look.policy.cluster_files and not is_old(look, Age.CLUSTER, oldest_of(chosen)):
        left = _widest(sorted(chosen, key=attrgetter("size_bytes", "path")), settled=True)
        if not look.is_settled or len(left) <= SETTLE_FILES:
            waits += [(Age.CLUSTER, oldest_of(chosen)), *look.settling()]
            return None
        astray = [file for file in left if not file.ordered]
        chosen, reason = left, f"{len(left)} small files or files out of order, and no recent writes"
    taken = _first_within(look, chosen)
    if not astray and len(taken) <= look.outputs(size_of(taken)):
        return None
    return look.group(taken, reason)
