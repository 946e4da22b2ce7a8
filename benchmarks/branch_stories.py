"""What merges and what conflicts: stories of a branch and of `main`, in LakeTX, Nessie, and Spark with Iceberg.

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
from tests.iceberg.engines.environment import ICEBERG, SPARK_SETTINGS, STATEMENTS, ensure_spark
from tools.environment import FOLDER
from tools.toolchain import maven_command
from worker.spark.java import prepare_java

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


def in_iceberg(folder: Path) -> Mapping[str, str]:
    """What becomes of each story in Spark with Iceberg's branches, which a table has, and their `fast_forward`."""
    folder.mkdir()
    catalog = "spark.sql.catalog.lake"
    settings = SPARK_SETTINGS | {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(folder),
    }
    asked = folder / "asked.json"
    steps = [statements_of(story, f"lake.story{number}") for number, story in enumerate(STORIES)]
    asked.write_text(json.dumps({"settings": settings, "statements": [text for step in steps for text in step]}))
    assert prepare_java()
    command = [str(ensure_spark()), str(STATEMENTS), str(asked)]
    answers = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    said_of, became = iter(map(json.loads, answers)), dict[str, str]()
    for story, step in zip(STORIES, steps, strict=True):
        found = [next(said_of) for _ in step]
        merges = [one for text, one in zip(step, found, strict=True) if "fast_forward" in text]
        assert all("rows" in one or one in merges for one in found), found
        rows = sum(one["rows"][0][0] for text, one in zip(step, found, strict=True) if text.startswith("SELECT count"))
        is_done = all("rows" in one for one in merges)
        assert not is_done or rows == story.rows, (story.name, rows)
        became[story.name] = told(is_done)
    return became


def statements_of(story: Story, place: str) -> list[str]:
    names = {table: f"{place}.{table}" for table in story.tables}
    found = [f"CREATE NAMESPACE {place}"]
    for name in names.values():
        found += [
            f"CREATE TABLE {name} (id BIGINT)",
            f"INSERT INTO {name} VALUES (1)",
            f"INSERT INTO {name} VALUES (2)",
        ]
    found += [f"ALTER TABLE {name} CREATE BRANCH etl" for name in names.values()]
    found += [in_spark(names[table], what, ".branch_etl") for table, what in story.branch]
    found += [in_spark(names[table], what, "") for table, what in story.main]
    changed = dict.fromkeys(names[table] for table, _ in story.branch)
    found += [f"CALL lake.system.fast_forward('{name.removeprefix('lake.')}', 'main', 'etl')" for name in changed]
    return found + [f"SELECT count(*) FROM {name}" for name in names.values()]


def in_spark(name: str, what: str, branch: str) -> str:
    return {
        "append": f"INSERT INTO {name}{branch} (id) VALUES (3)",
        "delete": f"DELETE FROM {name}{branch} WHERE id = 1",
        "add column": f"ALTER TABLE {name} ADD COLUMN note STRING",  # a schema is of all branches
        "compact": f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
    }[what]


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
    nessies, icebergs = in_nessie(folder / "nessie"), in_iceberg(folder / "iceberg")
    heads = "on the branch", "on `main` meanwhile", "LakeTX", f"Nessie {NESSIE}", f"Iceberg {ICEBERG}, Spark"
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for story, merged in zip(STORIES, ours, strict=True):
        cells = story.name, told(merged), told(nessies[story.name]), icebergs[story.name]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def told(merged: bool) -> str:
    return "merged" if merged else "refused"
