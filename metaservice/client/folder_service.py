"""The service of a folder, without an operator: found if it runs, and started if it doesn't.

    with open_folder("lake") as client:
        table = client.get_table("sales")

The server is a separate process, never the caller's. The first caller that opens the folder starts it, and all others
share it. It stops when no client has needed it for a while, or when its socket was removed (cleaners of /tmp do that);
then the next call starts another. Only the user can access its files (0600, 0700). Below the folder:

    _laketx/server.lock     its holder is the server; the lock is free when the process ends, in any way
    _laketx/server.json     the address and the release of the server
    _laketx/server.sock     its socket (a long path, or one with unusual letters: in a folder of the user's under /tmp)
    _laketx/server.log      its log
    _laketx/store           its store

The caller that gets the lock starts the server and passes the lock on as an open file, so one of them always holds it.
Other callers wait until the server listens. After a failed call a client looks for the server again, and so replaces
one that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from metaservice.client import MetaClient

WIRE: Final = 2  # servers and clients of different releases understand each other while this is the same
IDLE_EXIT_S: Final = 30.0
START_TIMEOUT_S: Final = 30.0
LOOK_EVERY_S: Final = 0.01
SOCKET_PATH_BYTES_MAX: Final = 100  # the kernel takes 107, a JVM 106
LOG_BYTES_MAX: Final = 8 << 20
LOG_SHOWN_BYTES: Final = 2_000
ADDRESS: Final = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}\Z")  # host and port
PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_./-]+\Z")  # any other letter means something in an address
SERVE: Final = (sys.executable, "-m", "metaservice")
NO_TLS: Final = ("--tls-cert", "", "--tls-key", "", "--tls-client-ca", "")  # whatever the environment says
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Served:
    """The content of server.json."""

    address: str
    release: str
    wire: int
    pid: int = 0


def open_folder(
    path: str | os.PathLike[str],
    *,
    principal: str = "",
    client_name: str = "",
    idle_exit_s: float = IDLE_EXIT_S,
    retry_budget_s: float = 60.0,
) -> MetaClient:
    """A client of the folder's service, which runs when this returns and as long as the client is open."""
    revive = partial(_revive, path, idle_exit_s)
    address = find_or_start(path, idle_exit_s=idle_exit_s)
    from metaservice.client import (  # noqa: PLC0415 - loads while the server starts, and after it is found
        Credentials,
        MetaClient,
    )

    client = MetaClient(
        address,
        principal=principal,
        client_name=client_name,
        retry_budget_s=retry_budget_s,
        revive=revive,
        credentials=Credentials(),  # those of the environment are for another service
    )
    try:
        client.ping()  # opens the session, which the server stays for
    except BaseException:
        client.close()
        raise
    return client


def find_or_start(
    path: str | os.PathLike[str], *, idle_exit_s: float = IDLE_EXIT_S, timeout_s: float = START_TIMEOUT_S
) -> str:
    """The address of the folder's service, which is started if it doesn't run."""
    home = _home(Path(path))
    deadline_s = time.monotonic() + timeout_s
    while True:
        lock = _take_lock(home)
        if lock is not None and (started := _start(home, lock, idle_exit_s, deadline_s)):
            return started
        served = _read_served(home)
        if lock is None and served is not None and _listens(served.address):
            _check_wire(home, served)
            return served.address
        if time.monotonic() > deadline_s:
            facts = {"folder": str(home), "address": served.address if served is not None else ""}
            _refuse(
                "UNAVAILABLE",
                "SERVER_UNREACHABLE",
                "a process serves the folder but doesn't listen: open the folder again",
                **facts,
            )
        time.sleep(LOOK_EVERY_S)


def _revive(path: str | os.PathLike[str], idle_exit_s: float) -> None:
    """Runs between attempts of a call. Its failure means no more than the call's own failure."""
    from metaservice.client import MetaServiceError  # noqa: PLC0415 - see above

    with contextlib.suppress(MetaServiceError):
        find_or_start(path, idle_exit_s=idle_exit_s)


def looks_like_address(text: str) -> bool:
    """Whether a text like `meta:7070` is probably an address and not a folder."""
    return ADDRESS.match(text) is not None


def _home(folder: Path) -> Path:
    home = folder / "_laketx"
    try:
        if (folder / "CURRENT").exists() and (folder / "IDENTITY").exists():
            _refuse(
                "BLOCKED",
                "FOLDER_IS_A_STORE",
                "the folder belongs to a service that was started by hand: connect to that service",
                folder=str(folder),
            )
        if looks_like_address(str(folder)) and not folder.exists():
            message = f"it looks like an address: say laketx://{folder}, or ./{folder} where it is to be a folder"
            _refuse("INVALID", "ADDRESS_INVALID", message, folder=str(folder))
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            _make_private(folder)
        _make_private(home)
        return home.resolve(strict=True)
    except (OSError, ValueError) as error:  # the name is too long, or no name
        _refuse_folder(home, error)


def _make_private(folder: Path) -> None:
    """Restricts a folder to the user, whatever the umask; another user's stays as it is."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o777 != 0o700:
        folder.chmod(0o700)


def _refuse_folder(home: Path, error: OSError | ValueError) -> NoReturn:
    _refuse("BLOCKED", "FOLDER_UNUSABLE", str(error), folder=str(home.parent))


# -- the lock ----------------------------------------------------------------------------------------------------------

_held: set[int] = set()  # a process that is forked off in between must not keep them


def _forget_held() -> None:
    for lock in _held:
        os.close(lock)
    _held.clear()


os.register_at_fork(after_in_child=_forget_held)


def _take_lock(home: Path) -> int | None:
    """An open, locked file; None if another process has the lock."""
    try:
        lock = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _refuse_folder(home, error)
    _held.add(lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _let_go(lock)
        return None
    except OSError as error:
        _let_go(lock)
        _refuse_folder(home, error)
    return lock


def _let_go(lock: int) -> None:
    _held.discard(lock)
    os.close(lock)


# -- the server --------------------------------------------------------------------------------------------------------


def _start(home: Path, lock: int, idle_exit_s: float, deadline_s: float) -> str | None:
    """Starts the server, which gets the lock. None if it was stopped at once."""
    try:
        served = Served(f"unix:{_socket_path(home)}", _release(), WIRE)
        _write_served(home, served)
        log = home / "server.log"
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(home / "server.log.1")
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            os.fchmod(output.fileno(), 0o600)
            output_start = output.tell()
            words = ["--data", str(home / "store"), "--listen", served.address]
            server = start_server([*words, "--idle-exit-s", str(idle_exit_s), *NO_TLS], output, lock)
        _write_served(home, Served(served.address, served.release, served.wire, server.pid))
    except OSError as error:
        _refuse_folder(home, error)
    finally:
        _let_go(lock)
    while not _listens(served.address):
        if server.poll() is not None:
            if server.returncode <= 0:
                return None
            output_text = _tail(log, output_start)
            _refuse(
                "BLOCKED", "SERVER_FAILED", output_text, folder=str(home), log=str(log), exit=str(server.returncode)
            )
        if time.monotonic() > deadline_s:
            _refuse(
                "UNAVAILABLE",
                "SERVER_SLOW",
                "the server has started but doesn't listen yet: open the folder again",
                folder=str(home),
                log=str(log),
            )
        time.sleep(LOOK_EVERY_S)
    threading.Thread(target=server.wait, name="laketx-server-end", daemon=True).start()  # no zombie
    return served.address


def start_server(words: list[str], output: IO[bytes], lock: int) -> subprocess.Popen[Any]:
    """The process, which keeps the lock open as long as it lives."""
    return subprocess.Popen(
        [*SERVE, *words],
        cwd=ROOT,  # where these packages are, whatever the caller's path
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[lock],
        umask=0o077,  # its store and its socket are the user's alone
        start_new_session=True,  # the caller's terminal doesn't end it
    )


def _socket_path(home: Path) -> Path:
    path = home / "server.sock"
    if _suits_every_client(path):
        return path
    name = f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:32]}.sock"
    import tempfile  # noqa: PLC0415 - slow, and seldom needed

    folder = Path(tempfile.gettempdir()) / f"laketx-{os.getuid()}"
    if not _suits_every_client(folder / name):
        folder = Path("/tmp") / folder.name  # noqa: S108 - looked at below
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder / name


def _suits_every_client(path: Path) -> bool:
    """Whether every client can connect to a socket of that path."""
    return len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX and PLAIN_PATH.match(str(path)) is not None


def _listens(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address.removeprefix("unix:"))
        except OSError:
            return False
    return True


def _tail(log: Path, output_start: int) -> str:
    with log.open("rb") as file:
        file.seek(max(output_start, log.stat().st_size - LOG_SHOWN_BYTES))
        return file.read().decode(errors="replace").strip()


# -- server.json -------------------------------------------------------------------------------------------------------


def _write_served(home: Path, served: Served) -> None:
    """Only the holder of the lock calls this."""
    fresh = home / "server.json.tmp"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(asdict(served)) + "\n")
    fresh.replace(home / "server.json")


def _read_served(home: Path) -> Served | None:
    """Return the content of server.json; None if it doesn't exist yet, or this release can't read it."""
    try:
        content = json.loads((home / "server.json").read_text(encoding="utf-8"))
        return Served(str(content["address"]), str(content["release"]), int(content["wire"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _release() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and seldom needed

    try:
        return version("laketx")
    except PackageNotFoundError:
        return "unpackaged"


def _check_wire(home: Path, served: Served) -> None:
    if served.wire != WIRE:
        facts = {"folder": str(home), "running": served.release, "mine": _release(), "pid": str(served.pid)}
        _refuse(
            "BLOCKED",
            "SERVER_OTHER_RELEASE",
            "it stops by itself when no client uses it: open the folder again then",
            **facts,
        )


def _refuse(kind: str, reason: str, message: str, **facts: str) -> NoReturn:
    from metaservice.client.errors import ErrorKind, build_error  # noqa: PLC0415 - see above

    raise build_error(ErrorKind[kind], reason, message, facts)


# -- for clients that are no Python ------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """`python -m metaservice.client.folder_service FOLDER` starts the folder's service and prints its address."""
    from metaservice.client import MetaServiceError  # noqa: PLC0415 - see above

    (folder,) = arguments
    try:
        sys.stdout.write(f"{find_or_start(folder)}\n")
    except MetaServiceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
