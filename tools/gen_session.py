"""Plays the terminal session of docs/terminal.md, and writes it there if its output has changed.

Ids and times are new in each run; they don't count.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.wire import ROOT

TARGET: Final = "docs/terminal.md"
WIDTH: Final = 100
BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES: Final = (
    "laketx namespace create shop",
    'laketx table create shop.orders "id bigint" "day date" "amount decimal(10,2)" --partition-by day',
    "python -m examples.race shop.orders",
    "laketx versions shop.orders",
    "laketx why {lost}",
    "laketx files shop.orders --where \"day >= '2026-11-21' AND amount > 300\" --explain",
    'laketx table alter shop.orders --add "note string after day" --message "ticket 7"',
)
BEGIN: Final = "mkdir lake && export LAKETX_FOLDER=lake LAKETX_USER=ana"
COMMANDS: Final = (
    f'laketx() {{ "{sys.executable}" -m metaservice.cli "$@"; }}; python() {{ "{sys.executable}" "$@"; }}\n'
)
STYLE: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
LOST: Final = re.compile(r"^lost: (\S+)$", re.MULTILINE)
VOLATILE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}")


def play() -> str:
    """The session, in a folder of its own whose service ends with it."""
    with tempfile.TemporaryDirectory(prefix="laketx-session-") as folder:
        try:
            return "".join(steps(Path(folder)))
        finally:
            end_service(Path(folder) / "lake" / "_laketx")


def steps(folder: Path) -> Iterator[str]:
    (folder / "lake").mkdir()
    yield f"$ {BEGIN}\n"
    lost = ""
    for each in LINES:
        line = each.format(lost=lost)
        shown = run(line, folder, {"LAKETX_FOLDER": "lake", "LAKETX_USER": "ana"})
        found = LOST.search(shown)
        lost = found[1] if found is not None else lost
        yield f"$ {line}\n{shown}"


def run(line: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What a terminal shows of it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("LAKETX_SERVER", "COLUMNS", "LINES")}
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    process = subprocess.Popen(
        ["/bin/bash", "-c", COMMANDS + line],
        cwd=folder,
        env={**kept, **environment, "TERM": "xterm", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown = b"".join(read_all(leader))
    os.close(leader)
    process.wait()
    text = STYLE.sub("", shown.decode()).replace("\r\n", "\n")
    if process.returncode != 0:
        raise RuntimeError(f"`{line}` ended with {process.returncode}:\n{text}")
    return "".join(f"{each.rstrip()}\n" for each in text.splitlines())


def read_all(leader: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(leader, 1 << 16)
        except OSError:  # the other side has closed
            return
        if not part:
            return
        yield part


def end_service(home: Path) -> None:
    """Waits until it has let its lock go."""
    if not (home / "server.json").exists():
        return
    pid = int(json.loads((home / "server.json").read_text(encoding="utf-8"))["pid"])
    with (home / "server.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # it runs, so its number is nobody else's
            os.kill(pid, signal.SIGTERM)
            fcntl.flock(lock, fcntl.LOCK_EX)


def masked(session: str) -> str:
    return VOLATILE.sub("…", session)


def shown(root: Path = ROOT) -> str:
    (found,) = BLOCK.findall((root / TARGET).read_text(encoding="utf-8"))
    return str(found)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the session is not what happens")
    check = parser.parse_args(arguments).check
    played = play()
    if check and masked(played) != masked(shown(root)):
        print(f"the session in {TARGET} is not what happens: run `make docs`", file=sys.stderr)
        return 1
    update(root, played)
    return 0


def update(root: Path, played: str) -> None:
    """What differs by ids and times alone stays."""
    if masked(played) != masked(shown(root)):
        text = (root / TARGET).read_text(encoding="utf-8")
        (root / TARGET).write_text(BLOCK.sub(lambda _: f"```console\n{played}```", text), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
