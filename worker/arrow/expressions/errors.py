"""The error of an expression that isn't plain, apart from what parses it, which takes longer to load."""

from __future__ import annotations

from worker.base.errors import InputError


class NotPlainError(InputError):
    """The expression needs Spark; the text says why."""
