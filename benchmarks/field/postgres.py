"""A PostgreSQL server of its own for a benchmark, if the machine has the programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

USER: Final = "postgres"
SETTINGS: Final = ("listen_addresses=", "max_connections=500")  # each client of DuckLake opens several


@dataclass(frozen=True)
class Postgres:
    """A running server with its defaults: every commit is synced."""

    programs: Path
    socket: Path

    def new_database(self, name: str) -> str:
        """Make an empty database; return its connection string."""
        self._run("createdb", "--host", str(self.socket), "--username", USER, name)
        return f"dbname={name} host={self.socket} user={USER}"

    def version(self) -> str:
        return self._run("postgres", "--version").split()[2]

    def _run(self, program: str, *words: str) -> str:
        command = [str(self.programs / program), *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres | None]:
    """Run a server over a new folder until the end; None if the machine has no PostgreSQL."""
    programs = find_programs()
    if programs is None:
        yield None
        return
    data = folder / "postgres"
    data.mkdir()
    owner = None
    if os.geteuid() == 0:  # it refuses to run as root
        owner = USER
        folder.chmod(0o711)
        shutil.chown(data, USER)
    cluster = data / "data"
    options = " ".join(f"-c {setting}" for setting in (*SETTINGS, f"unix_socket_directories={data}"))
    _quietly([str(programs / "initdb"), "--auth=trust", f"--username={USER}", f"--pgdata={cluster}"], owner)
    control = [str(programs / "pg_ctl"), f"--pgdata={cluster}", "--wait"]
    _quietly([*control, f"--log={data}/log", f"--options={options}", "start"], owner)
    try:
        yield Postgres(programs, data)
    finally:
        _quietly([*control, "--mode=immediate", "stop"], owner)


def find_programs() -> Path | None:
    """Return the folder of initdb and pg_ctl: of the search path, or where Debian keeps them."""
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return folders[-1] if folders else None


def _quietly(command: list[str], owner: str | None) -> None:
    """Output goes nowhere: a server that holds on to a pipe keeps its reader waiting."""
    subprocess.run(command, check=True, user=owner, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
