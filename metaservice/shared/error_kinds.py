"""What a caller does after a refusal: the kinds of common.proto, for those that don't know the wire."""

from __future__ import annotations

from enum import Enum


class ErrorKind(Enum):
    """The caller's next step."""

    INVALID = "fix the request"
    NOT_FOUND = "stop asking for it"
    ALREADY_EXISTS = "pick another name"
    BLOCKED = "change something first"
    GONE = "ask for a newer version"
    STALE = "begin again"
    EXHAUSTED = "slow down"
    DENIED = "get rights"
    UNAVAILABLE = "send the same again"
    CORRUPT = "call a human"
