"""Commit times: they never repeat, never go back, and never fall at or below a time that was answered."""

from __future__ import annotations


def next_commit_time(now_us: int, last_commit_us: int, answered_us: int) -> int:
    """Wall time may jump backwards, a commit time never does."""
    return max(now_us, last_commit_us + 1, answered_us + 1)
