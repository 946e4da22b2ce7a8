"""The options that every command has: what the command line says, else the environment."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from metaservice.cli.failures import usage_failure

SERVER: Final = "127.0.0.1:7070"
TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class Settings:
    """Click fills the fields in while it reads the command line; `settle` adds what is left out there."""

    server: str = ""
    folder: str = ""  # of an embedded service; empty: the server's address counts
    output: str = "table"
    user: str = ""
    timeout_s: float = TIMEOUT_S
    width: int | None = None
    no_color: bool = False
    quiet: bool = False
    branch: str = ""  # on which tables are whose names say none
    branch_used: bool = False  # whether the name of a table was read with it

    @property
    def as_json(self) -> bool:
        return self.output == "json"

    @property
    def place(self) -> str:
        """The service's place, for people."""
        return self.folder or self.server

    def settle(self, environment: Mapping[str, str]) -> None:
        """An option overrides the environment, and LAKETX_SERVER overrides LAKETX_FOLDER."""
        if self.server and self.folder:
            raise usage_failure("--server or --folder, not both")
        if not self.place:
            self.server = environment.get("LAKETX_SERVER") or ""
            self.folder = "" if self.server else environment.get("LAKETX_FOLDER") or ""
        if not self.place:
            self.server = SERVER
        self.user = self.user or environment.get("LAKETX_USER") or system_user()


def system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return ""


def version() -> str:
    try:
        return metadata.version("laketx")
    except metadata.PackageNotFoundError:
        return "unknown"
