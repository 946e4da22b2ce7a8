"""Verifies a backup in a process of its own: what a damaged one does to its reader is not done to the service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from metaservice.store.backups.repository import Verification


class VerifyingProcess:
    """At most one at a time; `stop` may come from another thread."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._running: subprocess.Popen[str] | None = None

    def verify(self, repository: str, backup_id: str) -> Verification:
        """Raises OSError if that could not be found out."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "metaservice", "backups", "verify", repository, "--backup", backup_id]
        command += ["--scratch", str(self._scratch), "--json"]
        self._running = subprocess.Popen(  # noqa: S603 - this Python, no shell
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        said, errors = self._running.communicate()
        code, self._running = self._running.returncode, None
        try:
            return Verification(**json.loads(said))
        except (ValueError, TypeError):
            raise OSError(f"the verification ended with {code}: {errors.strip()[-500:]}") from None

    def stop(self) -> None:
        running = self._running
        if running is not None:
            running.kill()
