"""The token of every call, from where it comes: a text, a file that changes, or a command that prints it."""

from __future__ import annotations

import base64
import binascii
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metaservice.client.errors import ErrorKind, MetaServiceError, build_error
from metaservice.shared.file_stamps import Stamp, read_stamp

if TYPE_CHECKING:
    from metaservice.client.credentials import Credentials
    from metaservice.client.tracing import Metadata

AUTHORIZATION: Final = "authorization"
TOKEN: Final = re.compile(r"[\x21-\x7e]+")
COMMAND_S: Final = 60.0
KEEP_S: Final = 300.0  # a printed token that doesn't say when it expires
EARLY_S: Final = 60.0  # before a token expires its command runs again,
EARLY_SHARE: Final = 0.2  # or at this share of a short life
AGAIN_S: Final = 10.0  # after a command that failed, while the last token is good


class Tokens:
    """The metadata of calls, with the token. Threads can share it. No text of it names the token."""

    def __init__(self, credentials: Credentials, others: Metadata) -> None:
        """`others`: the rest of the metadata."""
        self._others = others
        self._lock = threading.Lock()
        self._source: _Source
        if credentials.token:
            self._source = _Text(credentials.token)
        elif credentials.token_file:
            self._source = _File(Path(credentials.token_file))
        else:
            self._source = _Command(credentials.token_command)
        self._metadata: Metadata | None = None
        self._read_at_s = 0.0

    def metadata(self) -> Metadata:
        """Raises DeniedError if there is no token."""
        if self._metadata is None or self._source.is_due():
            with self._lock:
                if self._metadata is None or self._source.is_due():
                    self._read()
        assert self._metadata is not None
        return self._metadata

    def renew(self, refused_at_s: float) -> None:
        """After a call that began then was refused: reads the token once more, unless another thread has done so."""
        with self._lock:
            if self._read_at_s <= refused_at_s:
                self._read()

    def _read(self) -> None:
        token = self._source.read().strip()
        if not TOKEN.fullmatch(token):
            raise _missing(f"{self._source.says} holds {'no token' if token else 'nothing'}")
        self._metadata = (*self._others, (AUTHORIZATION, f"Bearer {token}"))
        self._read_at_s = time.monotonic()


class _Source:
    says = ""

    def is_due(self) -> bool:
        """Whether it may have another token."""
        return False

    def read(self) -> str:
        raise NotImplementedError


class _Text(_Source):
    says = "the setting"

    def __init__(self, token: str) -> None:
        self._token = token

    def read(self) -> str:
        return self._token


class _File(_Source):
    says = "the token's file"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Stamp | None = None

    def is_due(self) -> bool:
        return (stamp := read_stamp(self._path)) is not None and stamp != self._seen

    def read(self) -> str:
        self._seen = read_stamp(self._path)
        try:
            return self._path.read_text(encoding="ascii")
        except OSError as error:
            raise _missing(f"{self._path} can't be read: {error.strerror}") from error
        except UnicodeDecodeError:
            return ""


class _Command(_Source):
    says = "what the token's command printed"

    def __init__(
        self,
        command: str,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._now_s = now_s
        self._monotonic_s = monotonic_s
        self._token = ""
        self._ends_s = 0.0
        self._due_s = 0.0

    def is_due(self) -> bool:
        return self._monotonic_s() >= self._due_s

    def read(self) -> str:
        try:
            token = run_command(self._command)
        except MetaServiceError:
            if not self._token or self._now_s() >= self._ends_s:
                raise
            self._due_s = self._monotonic_s() + AGAIN_S
            return self._token
        ends_s = expiry_of(token)
        left_s = KEEP_S if ends_s is None else max(0.0, ends_s - self._now_s())
        early_s = 0.0 if ends_s is None else min(EARLY_S, EARLY_SHARE * left_s)
        self._token, self._ends_s = token, self._now_s() + left_s
        self._due_s = self._monotonic_s() + max(1.0, left_s - early_s)
        return token


def run_command(command: str) -> str:
    """Return what the command prints; its stderr is the program's."""
    try:
        done = subprocess.run(  # noqa: S602 - the user's own command line
            command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):  # its text would hold what was printed so far
        raise _failed(f"it did not end within {COMMAND_S:.0f} s") from None
    if done.returncode:
        raise _failed(f"it ended with {done.returncode}; what it said is on stderr")
    return done.stdout.decode("ascii", errors="replace").strip()


def expiry_of(token: str) -> float | None:
    """When a JWT expires, in seconds since 1970; None: it is none, or doesn't say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        return None


def _missing(message: str) -> MetaServiceError:
    return build_error(ErrorKind.DENIED, "TOKEN_MISSING", message)


def _failed(message: str) -> MetaServiceError:
    return build_error(ErrorKind.DENIED, "TOKEN_COMMAND_FAILED", message)
