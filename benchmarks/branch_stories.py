"""What merges and what conflicts: stories of a branch and of `main` meanwhile, in LakeTX and in Nessie.

`make bench-branch ARGS=stories` plays them and prints the table of docs/branches.md. Nessie's server comes from Maven
Central, and a Java for it from PyPI.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.environment import ensure_nessie_java, ensure_python, said
from laketx import Lake, MergeRefusedError, connect
from laketx.branch import Branch
from tools.environment import FOLDER
from tools.toolchain import maven_command

NESSIE: Final = "0.99.0"
START_S: Final = 300
Commits = tuple[tuple[str, str], ...]  # of tables: what is done to them


@dataclass(frozen=True)
class Story:
    """Commits on a branch, and those of `main` before the merge. Each table begins with two rows."""

    name: str
    branch: Commits
    main: Commits
    rows: int  # of all tables after a merge
    tables: tuple[str, ...] = ("orders",)


APPEND: Final = (("orders", "append"),)
DELETE: Final = (("orders", "delete"),)
STORIES: Final = (
    Story("an append | an append to another table", APPEND, (("lines", "append"),), 6, ("orders", "lines")),
    Story("an append | an append", APPEND, APPEND, 4),
    Story("an append | a compaction", APPEND, (("orders", "compact"),), 3),
    Story("a new column | an append", (("orders", "add column"),), APPEND, 3),
    Story("a row is deleted | an append", DELETE, APPEND, 2),
    Story("a row is deleted | the same row is deleted", DELETE, DELETE, 1),
)


def play(lake: Lake, story: Story, number: int) -> bool:
    """Whether the branch was merged. Then nothing of either side is lost."""
    names = {table: f"story{number}.{table}" for table in story.tables}
    for name in names.values():
        lake.create_table(name, "id bigint", profile="row_level").append([{"id": 1}])
        lake.table(name).append([{"id": 2}])
    with lake.branch(f"story{number}") as branch:
        for table, what in story.branch:
            work(branch, names[table], what)
        for table, what in story.main:
            work(lake, names[table], what)
        try:
            branch.merge()
        except MergeRefusedError:
            return False
    rows = sum(lake.table(name).to_arrow().num_rows for name in names.values())
    assert rows == story.rows, (story.name, rows)
    return True


def work(lake: Lake | Branch, name: str, what: str) -> None:
    table = lake.table(name)
    if what == "append":
        table.append([{"id": 3}])
    elif what == "delete":
        table.delete("id = 1")
    elif what == "compact":
        assert table.compact() is not None
    else:
        table.add_columns("note string")


def in_nessie(folder: Path) -> Mapping[str, bool]:
    """Whether each story was merged there. Then nothing of either side is lost."""
    folder.mkdir()
    asked = json.dumps([asdict(story) for story in STORIES])
    with nessie(folder) as address:
        command = [str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.nessie_stories"]
        answers = said([*command, address, str(folder), asked])
    for story in STORIES:
        merged, rows = answers[story.name]
        assert not merged or rows == story.rows, (story.name, rows)
    return {name: bool(merged) for name, (merged, _) in answers.items()}


@contextmanager
def nessie(folder: Path) -> Iterator[str]:
    """A server with its store in memory; its address."""
    kept = FOLDER / "nessie" / f"nessie-quarkus-{NESSIE}-runner.jar"
    if not kept.exists():
        artifact = f"org.projectnessie.nessie:nessie-quarkus:{NESSIE}:jar:runner"
        subprocess.run(
            [*maven_command(), "--quiet", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"],
            cwd=folder,
            check=True,
        )
        kept.parent.mkdir(exist_ok=True)
        shutil.move(folder / kept.name, kept)
    ports = [free_port(), free_port()]
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": ports[0],
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": ports[1],
        "nessie.version.store.type": "IN_MEMORY",
    }
    command = [str(ensure_nessie_java()), "-Xmx512m", *(f"-D{name}={value}" for name, value in settings.items())]
    with (folder / "nessie.log").open("wb") as log:
        server = subprocess.Popen([*command, "-jar", str(kept)], cwd=folder, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{ports[0]}"
            wait_for(f"{address}/api/v2/config", server)
            yield address
        finally:
            server.terminate()
            server.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(address):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError("Nessie did not start: see nessie.log")


def table_of_stories(folder: Path) -> str:
    """The table of docs/branches.md."""
    folder.mkdir()
    with connect(folder / "lake") as lake:
        ours = [play(lake, story, number) for number, story in enumerate(STORIES)]
    theirs = in_nessie(folder / "nessie")
    lines = [f"| on the branch | on `main` meanwhile | LakeTX | Nessie {NESSIE} |", "| --- | --- | --- | --- |"]
    for story, merged in zip(STORIES, ours, strict=True):
        lines.append(f"| {story.name} | {told(merged)} | {told(theirs[story.name])} |")
    return "\n".join(lines)


def told(merged: bool) -> str:
    return "merged" if merged else "refused"
