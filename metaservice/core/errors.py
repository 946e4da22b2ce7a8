"""The few kinds of error; each kind is the caller's next step.

An error has a kind, a stable reason and facts as fields; the sentence is for people and may change.
"""

from __future__ import annotations

from metaservice.core.sentences import SENTENCES
from metaservice.shared.error_kinds import ErrorKind as ErrorKind


class MetaError(Exception):
    """A refusal. The refused request has changed nothing."""

    def __init__(self, kind: ErrorKind, reason: str, message: str = "", /, **facts: object) -> None:
        self.kind = kind
        self.reason = reason
        self.facts = {name: str(value) for name, value in facts.items()}
        self.message = message or SENTENCES.get(reason, "") or reason.replace("_", " ").lower()
        super().__init__(f"{reason}: {self.message} {self.facts or ''}")


def invalid(reason: str, message: str = "", /, **facts: object) -> MetaError:
    return MetaError(ErrorKind.INVALID, reason, message, **facts)


class BrokenInvariantError(Exception):
    """The service's state contradicts itself: the process must end; the next start reads the log."""
