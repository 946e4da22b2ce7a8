"""`laketx` on namespaces, tables, conditions, changes, watches, pins and folders, against a real service."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from metaservice.client import MetaClient, uuid7
from metaservice.store import keys
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.port import Batch
from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.conformance.server import stop
from tests.integration.service import Service
from tests.integration.terminal import DEADLINE_S, Ended, Shell, in_one_process, interrupt
from tools.gen_session import end_service

DAY = (date(2026, 11, 21) - date(1970, 1, 1)).days
Run = Callable[..., Ended]


@dataclass
class Lake:
    """A service with a table of three days, a file each in commits of their own."""

    shell: Shell
    client: MetaClient
    orders: str
    folder: Path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("cli") / "data"
    service = Service(folder)
    address = service.start()
    try:
        with MetaClient(address, principal="bo", client_name="loader", retry_budget_s=10) as client:
            yield Lake(Shell(address), client, built(client), folder)
    finally:
        assert service.process is not None
        stop(service.process)


def built(client: MetaClient) -> str:
    client.create_namespace("shop")
    kinds = {"id": "bigint", "day": "date", "note": "string"}
    columns = [catalog_pb2.Column(name=name, type=kind, nullable=True) for name, kind in kinds.items()]
    wanted = catalog_pb2.Table(name="shop.orders", columns=columns, partition_columns=["day"])
    table_id = client.create_table(wanted).table_id
    for number in range(3):
        append(client, table_id, number, message=f"Day {number}")
    return table_id


def append(client: MetaClient, table_id: str, number: int, message: str = "") -> int:
    """A file of one day, with ids from ten times its number on."""
    value = common_pb2.PartitionValue(column="day", value=common_pb2.Value(date=DAY + number))
    txn_id = uuid7()
    file = common_pb2.DataFile(
        path=f"{txn_id}/{number}", partition=common_pb2.Partition(values=[value]), rows=10, bytes=1 << 20
    )
    low, high = common_pb2.Value(integer=10 * number), common_pb2.Value(integer=10 * number + 9)
    file.stats.add(column_id=1, min=low, max=high, nulls=0)
    properties = {"job": f"load-{number}"}
    done = client.append(table_id, [file], txn_id=txn_id, commit_message=message, properties=properties)
    return done.tables[0].version


@pytest.fixture
def here(lake: Lake, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, which is quicker; what it says is caught."""

    def run(*words: str, environment: Mapping[str, str] | None = None) -> Ended:
        capfd.readouterr()
        asks = environment if environment is not None else {"LAKETX_SERVER": lake.shell.server, "LAKETX_USER": "ana"}
        code = command_line.run(words, {"PATH": os.environ["PATH"], **asks})
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


def of(ended: Ended) -> Any:
    assert (ended.code, ended.err) == (0, ""), ended
    return json.loads(ended.out)


def each_of(ended: Ended) -> list[Any]:
    assert (ended.code, ended.err) == (0, ""), ended
    return [json.loads(line) for line in ended.out.splitlines()]


# ---------------------------------------------------------------------------------------------------------- the catalog


def test_a_namespace_from_create_to_drop(lake: Lake, here: Run) -> None:
    assert here("namespace", "create", "lab", "--property", "user.owner=ana").out == "created namespace lab\n"
    again = here("namespace", "create", "lab")
    assert (again.code, "--if-not-exists" in again.err) == (Exit.REFUSED, True)
    assert of(here("namespace", "create", "lab", "--if-not-exists", "-o", "json"))["properties"] == {
        "user.owner": "ana"
    }
    assert [each["name"] for each in of(here("namespace", "list", "-o", "json"))] == ["lab", "shop"]
    shown = here("namespace", "show", "shop")
    assert re.search(r"^tables +1$", shown.out, re.MULTILINE)
    assert here("namespace", "drop", "lab", "--dry-run").out == "would drop namespace lab\n"
    assert here("namespace", "drop", "lab").code == Exit.USAGE
    assert here("namespace", "drop", "lab", "-y").out == "dropped namespace lab\n"
    gone = here("namespace", "show", "lab")
    assert (gone.code, "NAMESPACE_UNKNOWN" in gone.err) == (Exit.NOT_FOUND, True)
    held = here("namespace", "drop", "shop", "--yes")
    assert (held.code, "laketx table list --namespace" in held.err) == (Exit.REFUSED, True)


def test_columns_change_in_their_order(lake: Lake, here: Run) -> None:
    made = here("table", "create", "alters", "id int not null", "day date comment 'of the order'", "p struct<Zip:int>")
    assert made.code == 0
    changes = ["--add", "net decimal(10, 2) comment 'it''s' after id", "--add", "first_one string first"]
    changes += ["--rename", "net=gross", "--move", "day first", "--widen", "id bigint", "--relax", "id"]
    changes += ["--add", "p.street string", "--comment-column", "gross=in euros", "--comment", "mine"]
    would = of(here("table", "alter", "alters", *changes, "--dry-run", "-o", "json"))
    assert here("table", "alter", "alters", *changes).out == "altered table alters: version 1\n"
    table = of(here("table", "show", "alters", "-o", "json"))
    assert would["columns"] == table["columns"]
    found = [(each["name"], each["type"], each["nullable"], each["comment"]) for each in table["columns"]]
    assert found == [
        ("day", "date", True, "of the order"),
        ("first_one", "string", True, ""),
        ("id", "bigint", True, ""),
        ("gross", "decimal(10,2)", True, "in euros"),
        ("p", "struct<Zip:int,street:string>", True, ""),
    ]
    asked = here("table", "alter", "alters", "--drop", "gross")
    assert (asked.code, "Drop gross of alters?" in asked.err) == (Exit.USAGE, True)
    assert here("table", "alter", "alters", "--drop", "gross", "--yes").code == 0
    before = of(here("table", "show", "alters", "--version", "1", "-o", "json"))
    first = of(here("table", "show", "alters", "--schema-version", "1", "-o", "json"))
    assert [len(each["columns"]) for each in (first, before)] == [3, 5]
    schemas = of(here("table", "schemas", "alters", "-o", "json"))
    assert [each["version"] for each in schemas] == [0, 1, 2]
    assert "p struct<Zip:int>" in here("table", "schemas", "alters").lines()[1]


def test_columns_of_any_name_and_a_table_of_another(here: Run) -> None:
    words = ["`unit price` decimal(4,1) comment 'net, of tax'", "`a.b` INT", "`x=y` string", "s struct<`P q`: INT>"]
    assert here("table", "create", "oddly", *words, "--key", "`A.b`").code == 0
    changes = ["--rename", "`x=y`=`z w`", "--add", "S.`n n` INT", "--move", "`a.b` first"]
    assert here("table", "alter", "ODDLY", *changes, "--comment-column", "UNIT PRICE=gross", "-m", "names").code == 0
    shown = of(here("table", "show", "oddly", "-o", "json"))
    assert [(each["name"], each["type"], each["comment"]) for each in shown["columns"]] == [
        ("a.b", "int", ""),
        ("unit price", "decimal(4,1)", "gross"),
        ("z w", "string", ""),
        ("s", "struct<`P q`:int,`n n`:int>", ""),
    ]
    assert shown["primary_key"] == ["a.b"]
    assert here("table", "rename", "oddly", "shop.evenly").out == "renamed table oddly to shop.evenly: version 2\n"
    taken = here("table", "rename", "shop.evenly", "SHOP.Orders")
    assert (taken.code, "TABLE_EXISTS" in taken.err) == (Exit.REFUSED, True)
    bad = here("table", "alter", "shop.evenly", "--add", "k int not null")
    assert (bad.code, "without NOT NULL" in bad.err) == (Exit.USAGE, True)
    here("table", "drop", "SHOP.EVENLY", "--yes")


def test_a_table_is_made_where_one_may_be(lake: Lake, here: Run) -> None:
    create = ("table", "create", "again", "id bigint")
    first = of(here(*create, "-o", "json"))
    append_columns = ("table", "create", "again", "--columns", "id bigint, note string")
    taken = here(*append_columns)
    assert (taken.code, "--or-replace" in taken.err) == (Exit.REFUSED, True)
    assert of(here(*append_columns, "--if-not-exists", "-o", "json"))["columns"] == first["columns"]
    assert here(*append_columns, "--or-replace", "--dry-run").out == "would replace table again\n"
    assert here(*append_columns, "--or-replace").code == Exit.USAGE
    assert here(*append_columns, "--or-replace", "--yes").out == "replaced table again: version 1\n"
    table = of(here("table", "show", "again", "-o", "json"))
    assert (table["table_id"], len(table["columns"])) == (first["table_id"], 2)
    assert here("table", "create", "new", "id int", "--or-replace", "--dry-run").out == "would create table new\n"
    assert here("table", "show", "new").code == Exit.NOT_FOUND


def test_a_dropped_table_comes_back(lake: Lake, here: Run) -> None:
    ids = []
    for _ in range(2):
        ids.append(of(here("table", "create", "twice", "id int", "-o", "json"))["table_id"])
        assert here("table", "drop", "twice", "--yes").code == 0
    dropped = of(here("table", "list", "--dropped", "-o", "json"))
    assert {each["table_id"] for each in dropped if each["name"] == "twice"} == set(ids)
    assert here("table", "list", "--dropped").lines()[0].split()[:3] == ["NAME", "DROPPED", "(UTC)"]
    offered = here("__complete", "3", "laketx", "table", "undrop", "tw")
    assert [line.partition("\t")[0] for line in offered.lines()] == ["twice"]
    wrong = here("table", "undrop", "twcie")
    assert (wrong.code, "did you mean `twice`?" in wrong.err) == (Exit.NOT_FOUND, True)
    back = here("table", "undrop", "twice")
    assert (back.out, ids[0] in back.err) == ("undropped table twice: version 0\n", True)
    assert of(here("table", "show", "twice", "-o", "json"))["table_id"] == ids[1]
    assert here("table", "drop", "twice", "--yes", "-q").code == 0
    assert here("table", "undrop", ids[0], "-q").code == 0
    assert of(here("table", "show", "twice", "-o", "json"))["table_id"] == ids[0]


# -------------------------------------------------------------------------------------------------------------- history


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        ("--by bo --logical", [3, 2, 1]),
        ("--by ana", []),
        ("--client loader --from 2 --to 99", [3, 2]),
        ("--operation create --operation overwrite", [0]),
        ("--message DAY -m day", [3, 2, 1]),
        ("--property job=load-1", [2]),
        ("--property job --limit 2", [3, 2]),
        ("--since 2001-01-01 --until now", [3, 2, 1, 0]),
        ("--until 2001-01-01", []),
    ],
)
def test_history_is_filtered(here: Run, options: str, versions: list[int]) -> None:
    found = of(here("versions", "shop.orders", "-o", "json", *options.split()))
    assert [each["version"] for each in found] == versions


def test_a_version_so_many_commits_ago(here: Run) -> None:
    found = of(here("show", "shop.orders", "--ago", "1", "-o", "json"))
    assert (found["commit"]["version"], found["live"]["files"]) == (2, 2)
    assert len(here("files", "shop.orders", "--ago", "2").lines()) == 2
    too_many = here("show", "shop.orders", "--ago", "9")
    assert (too_many.code, "VERSION_RETIRED" in too_many.err) == (Exit.NOT_FOUND, True)


@pytest.mark.parametrize(
    ("options", "days", "pruned"),
    [
        (["--where", "day = '2026-11-22'"], ["2026-11-22"], (2, 0)),
        (["--where", "day <> DATE '2026-11-22' AND id < 10"], ["2026-11-21"], (1, 1)),
        (["--where", "id IN (5, 25) OR note IS NULL"], ["2026-11-21", "2026-11-22", "2026-11-23"], (0, 0)),
        (["--where", "id BETWEEN 12 AND 28", "--partition", "day=2026-11-23"], ["2026-11-23"], (2, 0)),
        (["--where", "id >= 10", "--version", "2"], ["2026-11-22"], (0, 1)),
        (["--partition", "day=NULL"], [], (3, 0)),
    ],
)
def test_files_that_a_scan_reads(here: Run, options: list[str], days: list[str], pruned: tuple[int, int]) -> None:
    *entries, last = each_of(here("files", "shop.orders", *options, "--explain", "-o", "json"))
    found = sorted(DAY + int(entry["file"]["path"].rpartition("/")[2]) for entry in entries)
    assert [date.fromordinal(day + date(1970, 1, 1).toordinal()).isoformat() for day in found] == days
    told = last["explanation"]
    assert (told["files_pruned_by_partition"], told["files_pruned_by_statistics"]) == pruned
    assert told["files_kept"] == len(entries)
    assert all(entry["file"]["stats"] for entry in entries)


def test_an_explanation_is_for_people(here: Run) -> None:
    done = here("files", "shop.orders", "--where", "day > '2026-11-21' AND id < 15", "--explain", "--limit", "0")
    assert done.code == 0
    assert re.search(r"^partitions +3, 1 left out$", done.out, re.MULTILINE)
    assert re.search(r"^ +1 +partition +day > '2026-11-21'$", done.out, re.MULTILINE)
    assert re.search(r"^ +1 +statistics +id < 15$", done.out, re.MULTILINE)


def test_a_condition_that_can_not_be_read_is_pointed_at(here: Run) -> None:
    for command in ("files", "changes"):
        done = here(
            command,
            "shop.orders",
            *(["--from", "0"] if command == "changes" else []),
            "--where",
            "id = 1 AND dya IS NULL",
        )
        assert (done.code, done.out) == (Exit.USAGE, "")
        assert "did you mean `day`?" in done.err
        assert done.err.endswith("  id = 1 AND dya IS NULL\n             ^\n")
    assert here("files", "shop.orders", "--partition", "day=monday").code == Exit.USAGE


def test_a_condition_names_the_columns_as_they_were(lake: Lake, here: Run) -> None:
    columns = [catalog_pb2.Column(name=name, type=kind) for name, kind in {"id": "bigint", "day": "date"}.items()]
    wanted = catalog_pb2.Table(name="renamed", columns=columns, partition_columns=["day"])
    table_id = lake.client.create_table(wanted).table_id
    append(lake.client, table_id, 0)
    append(lake.client, table_id, 1)
    assert here("table", "alter", "renamed", "--rename", "id=number").code == 0
    assert len(here("files", "renamed", "--version", "2", "--where", "id >= 10").lines()) == 2
    assert len(here("files", "renamed", "--ago", "1", "--where", "id >= 10").lines()) == 1
    assert len(here("files", "renamed", "--where", "number >= 10").lines()) == 2
    assert len(here("changes", "renamed", "--from", "0", "--to", "2", "--where", "id >= 0").lines()) == 3
    assert len(here("changes", "renamed", "--from", "0", "--where", "number >= 0").lines()) == 3
    for options in (["--version", "2", "--where", "number >= 10"], ["--where", "id >= 10"]):
        assert here("files", "renamed", *options).code == Exit.USAGE


def test_changes_commit_by_commit_and_end_to_end(lake: Lake, here: Run) -> None:
    log = each_of(here("changes", "shop.orders", "--from", "1", "--to", "3", "-o", "json"))
    assert [(part["version"]["version"], len(part["added"]), len(part["removed"])) for part in log] == [
        (2, 1, 0),
        (3, 1, 0),
    ]
    ends = each_of(here("changes", "shop.orders", "--from", "0", "--mode", "difference", "-o", "json"))
    assert sum(len(part["added"]) for part in ends) == 3
    one = here("changes", "shop.orders", "--from", "0", "--where", "day = '2026-11-23'")
    assert [line.split()[:5] for line in one.lines()[1:]] == [["3", "insert", "+", "data", "day=2026-11-23"]]
    assert here("changes", "shop.orders", "--from", "3", "--to", "1").code == Exit.REFUSED
    backwards = of(here("diff", "shop.orders", "--from", "3", "--to", "1", "-o", "json"))
    assert (len(backwards["added"]), len(backwards["removed"])) == (0, 2)


# ---------------------------------------------------------------------------------------------------------------- watch


def test_a_watch_shows_each_commit_at_once(lake: Lake, here: Run) -> None:
    table = of(here("table", "create", "watched", "id bigint", "day date", "--partition-by", "day", "-o", "json"))
    process = lake.shell.start("watch", "watched", "--after", "-1", "-o", "json")
    assert process.stdout is not None
    seen = []
    for number in range(3):
        seen.append(json.loads(process.stdout.readline()))
        append(lake.client, table["table_id"], number)
    seen.append(json.loads(process.stdout.readline()))
    ended = interrupt(process)
    assert (ended.code, ended.out, ended.err) == (Exit.INTERRUPTED, "", "")
    assert [each["version"] for each in seen] == [0, 1, 2, 3]
    shown = lake.shell.terminal("watch", "watched", "--after", "0", "--count", "2", width=60)
    assert (shown.code, max(map(len, shown.lines())) <= 60) == (0, True), shown
    assert [line.split()[0] for line in shown.lines()] == ["version", "1", "2"]


def test_a_watch_runs_a_command_for_each_commit(here: Run, tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = f'echo "$LAKETX_VERSION $LAKETX_OPERATION $LAKETX_TABLE $LAKETX_SERVER" >> {said}; cat >> {said}'
    watch = ("watch", "shop.orders", "--after", "0", "--count", "2")
    done = here(*watch, "--exec", command)
    assert (done.code, done.out) == (0, "")
    assert "version 2: insert by bo" in done.err
    lines = said.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"1 insert shop\.orders 127\.0\.0\.1:\d+", lines[0])
    assert json.loads(lines[3])["commit_message"] == "Day 1"
    failed = here(*watch, "--exec", f"echo $LAKETX_VERSION >> {said}.2; exit 3")
    assert (failed.code, "COMMAND_FAILED" in failed.err, "--after 0" in failed.err) == (Exit.REFUSED, True, True)
    assert here(*watch, "--exec", f"echo $LAKETX_VERSION >> {said}.3; exit 3", "--keep-going", "-q").err == ""
    assert Path(f"{said}.2").read_text(encoding="utf-8") == "1\n"
    assert Path(f"{said}.3").read_text(encoding="utf-8") == "1\n2\n"


def test_ctrl_c_ends_a_watch_and_its_command(lake: Lake, tmp_path: Path) -> None:
    """A terminal sends it to both."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    process = lake.shell.start(
        "watch", "shop.orders", "--after", "0", "--exec", f"echo $$ > {ready}; exec sleep 60", "-q"
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        command = int(ready.read_text(encoding="utf-8"))
        os.kill(command, signal.SIGINT)
        ended = interrupt(process)
    finally:
        watchdog.cancel()
    assert (ended.code, ended.out, ended.err) == (Exit.INTERRUPTED, "", "")


# ------------------------------------------------------------------------------------------------------------ operators


def test_a_pin_from_create_to_end(lake: Lake, here: Run) -> None:
    pin = of(here("pins", "create", "shop.orders@1", "--lease", "60", "-o", "json"))
    assert (pin["tables"][0]["version"], pin["lease_ms"]) == (1, 60_000)
    (held,) = of(here("pins", "list", "-o", "json"))
    assert (held["pin_id"], held["version"], held["principal"]["name"]) == (pin["pin_id"], 1, "ana")
    assert "shop.orders" in here("pins", "list").lines()[1]
    assert here("pins", "renew", pin["pin_id"], "--lease", "30").out.endswith(": it holds for 30 s\n")
    assert here("pins", "end", pin["pin_id"], "--dry-run").out == "would end the pin of ana on shop.orders@1\n"
    assert here("pins", "end", pin["pin_id"]).code == Exit.USAGE
    assert here("pins", "end", pin["pin_id"], "--yes").code == 0
    for command in ("renew", "end"):
        gone = here("pins", command, pin["pin_id"])
        assert (gone.code, "laketx pins list" in gone.err) == (Exit.NOT_FOUND, True)
    assert here("pins", "create", "shop.orders@new").code == Exit.NOT_FOUND  # there is no such branch
    brief = here("pins", "create", "shop.orders", "--lease", "1").out
    created = re.fullmatch(r"created pin (\S+): it holds shop\.orders@3 for 1 s\n", brief)
    assert created is not None
    lake.client.unpin(created[1])


def test_status_and_purge_of_a_service_that_is_well(lake: Lake, here: Run) -> None:
    status = of(here("status", "-o", "json"))
    assert (status["read_only_reason"], status["purge_hold_reason"]) == ("", "")
    shown = here("status")
    assert f"service       {lake.shell.server}\n" in shown.out
    assert "PURGE" not in shown.out
    assert of(here("purge", "list", "-o", "json")) == []
    assert of(here("purge", "list", "shop.orders", "-o", "json")) == []
    assert here("purge", "release").out == "nothing to release: it does not wait\n"


def test_a_backup_is_restored_checked_and_released(lake: Lake, here: Run, tmp_path: Path) -> None:
    assert "would copy" in here("backup", "b1", "--dry-run").out
    assert here("backup", "b1", "-q").out == ""
    taken = here("backup", "b1")
    assert (taken.code, "BACKUP_EXISTS" in taken.err) == (Exit.REFUSED, True)
    backup, data = lake.folder.with_name(f"{lake.folder.name}-backups") / "b1", tmp_path / "restored"
    asked = lake.shell.run("restore", "--backup", str(backup), "--data", str(data), "--dry-run")
    assert (asked.code, data.exists()) == (0, False)
    assert lake.shell.run("restore", "--backup", str(backup), "--data", str(data)).code == 0
    spoil(data, lake.orders)
    offline = lake.shell.run("check", "--data", str(data))
    assert (offline.code, "TIME_NOT_FOUND" in offline.out) == (1, True)
    service = Service(data)
    there = {"LAKETX_SERVER": service.start()}
    try:
        found = here("check", environment=there)
        assert (found.code, "TIME_NOT_FOUND" in found.out, ": 1 problems" in found.out) == (Exit.CORRUPT, True, True)
        assert here("check", "shop.orders", "-o", "json", environment=there).code == Exit.CORRUPT
        assert "PURGE WAITS" in here("status", environment=there).out
        assert "would release" in here("purge", "release", "--dry-run", environment=there).out
        assert here("purge", "release", environment=there).code == Exit.USAGE
        assert here("purge", "release", "-y", environment=there).out == "released the purge\n"
        assert "PURGE WAITS" not in here("status", environment=there).out
    finally:
        assert service.process is not None
        stop(service.process)
    parts = each_of(here("check", "shop.orders", "-o", "json"))
    assert (parts[-1]["done"], parts[-1]["problems"]) == (True, [])
    assert here("check", "shop.orders", "--data", "x").code == Exit.USAGE


def spoil(data: Path, table_id: str) -> None:
    """The store loses one entry of its index by time."""
    store = RocksStore(data)
    try:
        prefix = keys.times_prefix(bytes.fromhex(table_id.replace("-", "")))
        *_, (key, _) = store.cursor().scan(prefix, prefix + b"\xff" * 9)
        batch = Batch()
        batch.delete(key)
        store.write(batch)
        store.write_out()
    finally:
        store.close()


# -------------------------------------------------------------------------------------------------------------- folders


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Its service doesn't outlive the test."""
    path = tmp_path / "lake"
    path.mkdir()
    yield path
    end_service(path / "_laketx")


def test_a_folder_instead_of_a_server(lake: Lake, here: Run, folder: Path) -> None:
    there = {"LAKETX_FOLDER": str(folder), "LAKETX_USER": "ana"}
    assert here("__complete", "2", "laketx", "versions", "x", environment=there).out == ""
    assert list(folder.iterdir()) == []
    assert here("table", "create", "mine", "id bigint", environment=there).code == 0
    assert here("--folder", str(folder), "table", "list").lines()[1].split()[0] == "mine"
    assert here("health", environment=there).out == f"{folder} is serving\n"
    assert here("ping", "-c", "1", environment=there).out.startswith(f"{folder} answers")
    done = here("watch", "mine", "--after", "-1", "--count", "1", "--exec", "echo $LAKETX_FOLDER", environment=there)
    assert done.out == f"{folder}\n"
    offered = here("__complete", "4", "laketx", "--folder", str(folder), "versions", "m")
    assert offered.out == "mine\t\n"
    served = here("table", "list", environment={**there, "LAKETX_SERVER": lake.shell.server})
    assert "shop.orders" in served.out
    both = here("table", "list", "--folder", str(folder), "--server", "x")
    assert (both.code, "not both" in both.err) == (Exit.USAGE, True)
    wrong = here("table", "list", "--folder", str(folder / "lkae"))
    assert (wrong.code, "FOLDER_MISSING" in wrong.err) == (Exit.NOT_FOUND, True)
    assert not (folder / "lkae").exists()


# ------------------------------------------------------------------------------------------------------------- terminal


@pytest.mark.parametrize("width", [60, 110])
def test_nothing_is_wider_than_the_terminal(lake: Lake, width: int) -> None:
    explained = "files shop.orders --where id>12 --explain"
    commands = ["namespace list", "table list --dropped", "table schemas shop.orders", "pins list", "status", explained]
    shown = lake.shell.terminal(width=width, command=in_one_process(*commands, "changes shop.orders --from 0"))
    assert shown.code == 0, shown.out
    assert max(len(line) for line in shown.lines() if not line.startswith("hidden columns: ")) <= width


def test_completion_knows_the_new_words(lake: Lake, here: Run) -> None:
    pin_id = of(here("pins", "create", "shop.orders", "-o", "json"))["pin_id"]
    last = next(lake.client.list_transactions())
    for line, offers in {
        "laketx pins create shop.orders sh": ["shop.orders"],
        "laketx versions shop.orders --operation res": ["restore"],
        "laketx changes shop.orders --mode ": ["log", "difference"],
        "laketx namespace drop sh": ["shop"],
        "laketx check sh": ["shop.orders"],
        "laketx restore --backup x": [":files"],
        "laketx table alter shop.orders --drop ": ["id", "day", "note"],
        "laketx table alter nothing --drop ": [],
        "laketx txn abort ": [],
        f"laketx txn show {last.txn_id}": [last.txn_id],
        "laketx pins end ": [pin_id],
        "laketx --folder x": [":files"],
        "laketx table alter shop.orders --comment": ["--comment-column", "--comment"],
    }.items():
        words = line.split(" ")
        done = here("__complete", str(len(words) - 1), *words)
        assert [each.partition("\t")[0] for each in done.out.splitlines()] == offers, line


def test_views_are_listed_shown_and_dropped(lake: Lake, here: Run) -> None:
    column = catalog_pb2.ViewColumn(name="total", type="BIGINT")
    lake.client.put_view(catalog_pb2.View(name="shop.v", text="SELECT 1 AS total", columns=[column], comment="mine"))
    assert [each["name"] for each in of(here("view", "list", "-o", "json"))] == ["shop.v"]
    assert [line.split()[0] for line in here("view", "list", "--namespace", "shop").lines()] == ["NAME", "shop.v"]
    assert re.search(r"^query +SELECT 1 AS total$", here("view", "show", "SHOP.V").out, re.MULTILINE)
    assert of(here("view", "show", "shop.v", "-o", "json"))["columns"][0]["type"] == "BIGINT"
    assert here("view", "drop", "shop.v", "--dry-run").out == "would drop view shop.v\n"
    assert here("view", "drop", "shop.v", "-y").out == "dropped view shop.v\n"
    gone = here("view", "show", "shop.v")
    assert (gone.code, "laketx view list" in gone.err) == (Exit.NOT_FOUND, True)


def test_a_branch_for_names_that_say_none(lake: Lake, here: Run) -> None:
    """Before or after the command, for names alone: ids and names with a branch are as they are."""
    lake.client.create_branch("cli")
    try:
        assert here("--branch", "cli", "table", "create", "shop.lined", "id bigint").code == 0
        assert here("table", "show", "shop.lined").code == Exit.NOT_FOUND
        shown = of(here("table", "show", "shop.lined", "--branch", "cli", "-o", "json"))
        assert shown["name"] == "shop.lined@cli"
        assert of(here("--branch", "cli", "table", "show", "shop.orders@main", "-o", "json"))["name"] == "shop.orders"
        assert of(here("--branch", "main", "table", "show", "shop.orders", "-o", "json"))["name"] == "shop.orders"
        by_id = of(here("--branch", "cli", "table", "show", lake.orders, "-o", "json"))
        assert by_id["name"] == "shop.orders"
        pin = of(here("--branch", "cli", "pins", "create", "shop.orders@1", "-o", "json"))
        assert pin["tables"][0]["table_id"] != lake.orders
        lake.client.unpin(pin["pin_id"])
        unknown = here("--branch", "nowhere", "versions", "shop.orders")
        assert (unknown.code, "BRANCH_UNKNOWN" in unknown.err) == (Exit.NOT_FOUND, True)
        assert "shop.lined@cli" in str(of(here("--branch", "cli", "table", "list", "-o", "json")))
        for words in (["pins", "list"], ["branch", "show", "cli"]):
            refused = here("--branch", "cli", *words)
            assert (refused.code, "--branch is for commands" in refused.err) == (Exit.USAGE, True)
    finally:
        lake.client.drop_branch("cli")
