"""Compactions: minor, major and clustering, of both kinds of table, as one Spark job over many buckets."""

from worker.jobs.planning import Group, plan_groups
from worker.jobs.running import Compaction, DigestMismatchError, Options, run, staged

__all__ = ["Compaction", "DigestMismatchError", "Group", "Options", "plan_groups", "run", "staged"]
