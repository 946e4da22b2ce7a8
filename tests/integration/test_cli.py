"""`laketx` as people and programs use it, against a real service."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from metaservice.cli.output import SHORTEST
from metaservice.client import PROFILE_NAMES, ConflictError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from tests.conformance.server import ROOT, stop
from tests.integration.service import Service, free_address
from tests.integration.terminal import DEADLINE_S, LAKETX, Ended, Shell, in_one_process, install, interrupt

DAY = 20_778  # 2026-11-21
MANY = 3_000
ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
Run = Callable[..., Ended]
HOSTILE = "two\nlines and \x1b[31ma colour"


@dataclass
class Lake:
    """A service with tables, and what happened to them."""

    shell: Shell
    client: MetaClient
    orders: str
    lost: str = ""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    service = Service(tmp_path_factory.mktemp("cli") / "data")
    address = service.start()
    try:
        with MetaClient(address, principal="bo", client_name="tests", retry_budget_s=10) as client:
            yield built(Shell(address), client)
    finally:
        assert service.process is not None
        stop(service.process)


def built(shell: Shell, client: MetaClient) -> Lake:
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="date")]
    key = ["id"]
    client.create_namespace("shop")
    client.create_namespace("tmp")
    orders = client.create_table(
        catalog_pb2.Table(
            name="shop.orders",
            columns=columns,
            partition_columns=["day"],
            primary_key=key,
            buckets=1,
            properties={"key.scope": "partition"},
        )
    ).table_id
    events = client.create_table(catalog_pb2.Table(name="events", columns=columns, partition_columns=["day"])).table_id
    lake = Lake(shell, client, orders)
    append(client, orders, message=HOSTILE)
    append(client, events, files=MANY)
    lake.lost = lose(client, orders)
    return lake


def day(number: int = DAY) -> common_pb2.Partition:
    return common_pb2.Partition(values=[common_pb2.PartitionValue(column="day", value=common_pb2.Value(date=number))])


def file(txn_id: str, name: str, partition: int = DAY, *, keyed: bool = False) -> common_pb2.DataFile:
    kind = common_pb2.FILE_KIND_DELTA if keyed else common_pb2.FILE_KIND_UNSPECIFIED
    return common_pb2.DataFile(path=f"{txn_id}/{name}", partition=day(partition), kind=kind, rows=10, bytes=1 << 20)


def append(client: MetaClient, table_id: str, *, files: int = 1, message: str = "") -> None:
    intent = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
    keyed = files == 1
    with client.begin([intent], commit_message=message) as txn:
        txn.register(table_id, [file(txn.txn_id, f"{n}", DAY + n % 2, keyed=keyed) for n in range(files)])
        txn.commit([common_pb2.Change(table_id=table_id)])


def begin_insert(client: MetaClient, table_id: str) -> Any:
    intent = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
    txn = client.begin([intent])
    txn.register(table_id, [file(txn.txn_id, "late", keyed=True)])
    return txn


def overwrite(client: MetaClient, table_id: str) -> None:
    intent = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_OVERWRITE)
    with client.begin([intent], commit_message="rebuild") as txn:
        base = file(txn.txn_id, "base")
        base.kind = common_pb2.FILE_KIND_BASE
        txn.register(table_id, [base])
        change = common_pb2.Change(table_id=table_id)
        change.scope.named.partitions.append(day())
        txn.commit([change])


def lose(client: MetaClient, table_id: str) -> str:
    """The id of an INSERT that an OVERWRITE of its partition came before."""
    loser = begin_insert(client, table_id)
    overwrite(client, table_id)
    with pytest.raises(ConflictError):
        loser.commit([common_pb2.Change(table_id=table_id)])
    return str(loser.txn_id)


@pytest.fixture
def here(lake: Lake, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, which is quicker; what it says is caught."""

    def run(*words: str) -> Ended:
        capfd.readouterr()
        code = command_line.run(words, {"LAKETX_SERVER": lake.shell.server, "LAKETX_USER": "ana"})
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


# ---------------------------------------------------------------------------------------------------------------- pipes


def test_a_pipe_gets_whole_lines(lake: Lake) -> None:
    done = lake.shell.run("versions", "shop.orders")
    assert (done.code, done.err) == (0, "")
    header, *rows = done.lines()
    assert header.split()[0] == "VERSION"
    assert len(rows) == 3
    assert all(ID.search(row) for row in rows)
    assert "…" not in done.out
    assert "\x1b" not in done.out
    assert "two\\nlines and \\x1b[31ma colour" in done.out


def test_a_pipe_gets_all_of_a_long_list(lake: Lake) -> None:
    assert len(lake.shell.run("files", "events").lines()) == MANY + 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_is_never_too_narrow(lake: Lake, width: int) -> None:
    commands = ["table list", "table show shop.orders", "versions shop.orders", "txn list", f"why {lake.lost}"]
    shown = lake.shell.terminal(width=width, command=in_one_process(*commands))
    assert shown.code == 0, shown.out
    lines = [line for line in shown.lines() if not line.startswith("hidden columns: ")]
    assert [line for line in lines if len(line) > width] == []
    assert "…" not in shown.out
    assert "Traceback" not in shown.out
    # An id is shown whole, or as what it alone begins with; `laketx` takes both.
    starts = [word for line in lines for word in line.split() if re.match(r"[0-9a-f]{8}-[0-9a-f]{1,4}", word)]
    assert min(len(word) for word in starts if "/" not in word) >= SHORTEST
    (short,) = {word for word in starts if lake.lost.startswith(word)} - {lake.lost}
    assert lake.shell.run("txn", "outcome", short).out == lake.shell.run("txn", "outcome", lake.lost).out


def test_what_a_narrow_terminal_left_out_is_said(lake: Lake) -> None:
    narrow = lake.shell.terminal("table", "list", width=60)
    assert any(line.startswith("hidden columns: ") and "id" in line for line in narrow.lines())
    assert "hidden columns" not in lake.shell.terminal("table", "list", width=200).out
    assert "hidden columns" not in lake.shell.terminal("table", "list", "--quiet", width=60).out


def test_colours_can_be_turned_off(lake: Lake) -> None:
    assert "\x1b[31m" in lake.shell.terminal("why", lake.lost).out
    assert "\x1b[31m" not in lake.shell.terminal("why", lake.lost, "--no-color").out


def test_who_reads_may_stop_reading(lake: Lake) -> None:
    process = lake.shell.start("files", "events")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline().startswith("KIND")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.wait(DEADLINE_S) == Exit.PIPE_CLOSED


def test_output_that_can_not_be_written_is_a_failure(lake: Lake) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [*LAKETX, "table", "list"],
            check=False,
            cwd=ROOT,
            env=lake.shell.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
        )
    assert (done.returncode, done.stderr) == (Exit.REFUSED, "laketx: [Errno 28] No space left on device\n")


def test_json_is_one_document(lake: Lake, here: Run) -> None:
    versions = json.loads(here("-o", "json", "versions", "shop.orders").out)
    assert [each["version"] for each in versions] == [2, 1, 0]
    assert versions[0]["operation"] == "overwrite"
    assert versions[1]["commit_message"] == HOSTILE
    assert "time_version_us" not in versions[2]
    tables = json.loads(here("table", "list", "-o", "json").out)
    assert [(each["name"], each["head_version"]) for each in tables] == [("events", 1), ("shop.orders", 2)]
    assert json.loads(here("txn", "show", lake.lost, "-o", "json").out)["conflict"]["rule"] == "outcome_table"
    assert json.loads(here("ping", "-o", "json").out)["calls"] == 5


def test_json_of_a_stream_is_a_document_a_line(lake: Lake, here: Run) -> None:
    done = here("files", "events", "--limit", "3", "--output=json")
    entries = [json.loads(line) for line in done.lines()]
    assert [each["added_version"] for each in entries] == [1, 1, 1]
    assert entries[0]["file"]["bytes"] == 1 << 20


def test_json_of_an_error_is_a_document_on_stderr(lake: Lake, here: Run) -> None:
    done = here("table", "show", "ordrs", "-o", "json")
    error = json.loads(done.err)["error"]
    assert (done.out, error["reason"], error["exit_code"]) == ("", "TABLE_UNKNOWN", done.code)
    assert error["next"] == "did you mean `shop.orders`?"


# ------------------------------------------------------------------------------------------------------- what they show


def test_why_fits_on_a_screen_and_says_it_all(lake: Lake) -> None:
    shown = lake.shell.terminal("why", lake.lost, width=80)
    text = " ".join(shown.lines())
    assert len(shown.lines()) <= 24
    for part in ("shop.orders", "day=2026-11-21", "overwrite, version 2", "outcome table", "adopt_from", "bo"):
        assert part in text
    assert str(DAY) not in text


def test_explain_says_what_a_commit_would_answer(lake: Lake, here: Run, tmp_path: Path) -> None:
    txn = begin_insert(lake.client, lake.orders)
    would = here("explain", txn.txn_id)
    assert (would.code, would.out) == (0, "would commit to shop.orders as version 3\n")
    overwrite(lake.client, lake.orders)
    loses = here("explain", txn.txn_id)
    assert loses.code == Exit.CONFLICT
    assert "day=2026-11-21" in loses.out
    changes = tmp_path / "changes.json"
    changes.write_text(json.dumps({"changes": [{"table_id": lake.orders}]}), encoding="utf-8")
    assert here("explain", txn.txn_id, "--changes", str(changes)).code == Exit.CONFLICT
    assert here("explain", txn.txn_id, "--changes", str(tmp_path)).code == Exit.USAGE
    txn.abort()


def test_a_table_from_create_to_drop(lake: Lake, here: Run) -> None:
    columns = "id bigint, day date, amount decimal(10, 2)"
    made = here("table", "create", "tmp.life", "--columns", columns, "--key", "id,day", "--partition-by", "day")
    assert (made.code, made.err) == (0, "")
    assert here("table", "create", "tmp.life", "--columns", columns).code == Exit.REFUSED
    altered = here("table", "alter", "tmp.life", "--set", "user.owner=ana", "--comment", "mine", "-m", "handover")
    assert altered.out == "altered table tmp.life: version 1\n"
    table = json.loads(here("table", "show", "tmp.life", "-o", "json").out)
    assert (table["properties"], table["comment"], table["buckets"]) == ({"user.owner": "ana"}, "mine", 1)
    assert [each["type"] for each in table["columns"]] == ["bigint", "date", "decimal(10,2)"]
    newest = json.loads(here("versions", "tmp.life", "--limit", "1", "-o", "json").out)[0]
    assert newest["principal"]["name"] == "ana"
    assert re.fullmatch(r"laketx-cli/\d+\.\d+\.\d+.*", newest["principal"]["client"])
    assert newest["commit_message"] == "handover"
    assert here("table", "drop", "tmp.life", "--dry-run").out == "would drop tmp.life\n"
    assert here("table", "drop", "tmp.life", "--yes").out == "dropped table tmp.life\n"
    assert here("table", "show", table["table_id"]).code == Exit.NOT_FOUND


def test_a_version_is_shown_by_number_and_by_time(lake: Lake, here: Run) -> None:
    by_number = json.loads(here("show", "shop.orders", "--version", "1", "-o", "json").out)
    assert by_number["live"] == {"files": 1, "delete_sets": 0, "rows": 10, "bytes": 1 << 20, "partitions": 1}
    assert "at most 10: `laketx count shop.orders --version 1`" in here("show", "shop.orders", "--version", "1").out
    assert json.loads(here("show", "shop.orders", "-o", "json").out)["live"]["visible_rows"] == 10
    time_us = by_number["commit"]["commit_time_us"]
    at = f"{time_us // 1_000_000 - 1_000_000_000}"  # a time must be one: a bare number is not
    assert here("show", "shop.orders", "--at", at).code == Exit.USAGE
    assert "version  " in here("show", "shop.orders", "--at", "now", "--no-totals").out
    long_ago = here("show", "shop.orders", "--at", "2001-01-01")
    assert long_ago.code == Exit.NOT_FOUND
    assert "VERSION_RETIRED" in long_ago.err


def test_diff_shows_what_came_and_went(lake: Lake, here: Run) -> None:
    found = json.loads(here("diff", "shop.orders", "--from", "1", "--to", "2", "-o", "json").out)
    assert [each["file"]["path"].rpartition("/")[2] for each in found["added"]] == ["base"]
    assert [each["file"]["path"].rpartition("/")[2] for each in found["removed"]] == ["0"]
    done = here("diff", "shop.orders", "--from", "1", "--to", "2")
    assert [line.split()[0] for line in done.lines()[1:]] == ["-", "+"]
    assert "+1 files -1" in done.err


def test_files_of_one_partition(lake: Lake, here: Run) -> None:
    done = here("files", "events", "--partition", "day=2026-11-21")
    assert len(done.lines()) == MANY // 2 + 1
    assert all("day=2026-11-21" in line for line in done.lines()[1:])


def test_tables_of_a_namespace(here: Run) -> None:
    assert [line.split()[0] for line in here("table", "list", "--namespace", "shop").lines()] == ["NAME", "shop.orders"]
    wrong = here("table", "list", "--namespace", "shpo")
    assert (wrong.code, "did you mean `shop`?" in wrong.err) == (Exit.NOT_FOUND, True)


def test_transactions_show_partitions_as_people_write_them(lake: Lake, here: Run) -> None:
    for words in (("txn", "list", "--state", "conflict"), ("txn", "outcome", lake.lost)):
        said = here(*words, "--width", "400").out
        assert "day=2026-11-21" in said
        assert f"day={DAY}" not in said


def test_a_table_of_any_profile_is_made_and_altered(here: Run) -> None:
    for profile in PROFILE_NAMES:
        made = here("table", "create", f"tmp.of_{profile}", "--columns", "id bigint", "--profile", profile)
        assert made.code == Exit.DONE, made.err
        assert here("table", "alter", "tmp.of_maxcompute", "--profile", profile).code == Exit.DONE
    for profile in PROFILE_NAMES:
        here("table", "drop", f"tmp.of_{profile}", "--yes")


def test_transactions_are_filtered(lake: Lake, here: Run) -> None:
    lost = json.loads(here("txn", "list", "--state", "conflict", "-o", "json").out)
    assert [each["txn_id"] for each in lost] == [lake.lost]
    of_events = json.loads(here("txn", "list", "--table", "events", "-o", "json").out)
    assert len(of_events) == 1
    assert here("txn", "outcome", of_events[0]["txn_id"]).out == "committed: version 1\n"


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("tabel list", Exit.USAGE, "did you mean `table`?"),
        ("table lst", Exit.USAGE, "did you mean `list`?"),
        ("table list --namspace x", Exit.USAGE, "did you mean `--namespace`?"),
        ("txn list --state opne", Exit.USAGE, "did you mean `open`?"),
        ("help versoins", Exit.USAGE, "did you mean `versions`?"),
        ("table show shop.ordrs", Exit.NOT_FOUND, "did you mean `shop.orders`?"),
        ("versions orders", Exit.NOT_FOUND, "did you mean `shop.orders`?"),
        ("files shop.orders --partition dya=1", Exit.USAGE, "did you mean `day`?"),
        ("table show zzz", Exit.NOT_FOUND, "laketx table list"),
        ("table", Exit.USAGE, "needs a command"),
        ("versions", Exit.USAGE, "versions needs TABLE"),
        ("versions shop.orders --limit 0", Exit.USAGE, "from 1 to"),
        ("show shop.orders --version 99", Exit.REFUSED, "VERSION_IN_FUTURE"),
        ("show shop.orders --version 1 --at now", Exit.USAGE, "--version or --at, not both"),
        ("txn show 01a1fedb-56f3-7412-b463-0ac1e7daff9f", Exit.NOT_FOUND, "TRANSACTION_UNKNOWN"),
        ("txn abort LOST", Exit.REFUSED, "it is conflict"),
        ("table alter events", Exit.USAGE, "nothing to alter"),
        ("table alter events --set mine=1", Exit.REFUSED, "--set user.NAME=VALUE"),
        ("table create x --columns id", Exit.USAGE, "is not a column"),
        ("table drop events", Exit.USAGE, "--yes"),
    ],
)
def test_a_refusal_says_what_to_do(lake: Lake, here: Run, words: str, code: Exit, says: str) -> None:
    done = here(*words.replace("LOST", lake.lost).split())
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "Traceback" not in done.err


def test_a_service_that_is_not_there(lake: Lake) -> None:
    nobody = Shell(free_address())
    done = nobody.run("table", "list", "--timeout", "0.2")
    assert done.code == Exit.UNAVAILABLE
    assert f"no service answers at {nobody.server}" in done.err
    assert nobody.run("health", "--timeout", "0.2").code == Exit.UNAVAILABLE
    assert lake.shell.run("health", "--wait", "30").out == f"{lake.shell.server} is serving\n"


# ---------------------------------------------------------------------------------------------------- asked and stopped


def test_who_destroys_is_asked(lake: Lake, here: Run) -> None:
    here("table", "create", "tmp.asked", "--columns", "id bigint")
    ask = ("table", "drop", "tmp.asked")
    no = lake.shell.terminal(*ask, types=[("[y/N]", "\n")])
    assert (no.code, "nothing was changed" in no.out) == (Exit.REFUSED, True)
    stopped = lake.shell.terminal(*ask, types=[("[y/N]", "\x03")])
    assert (stopped.code, "Traceback" in stopped.out) == (Exit.INTERRUPTED, False)
    assert here("table", "show", "tmp.asked").code == 0
    yes = lake.shell.terminal(*ask, types=[("[y/N]", "y\n")])
    assert (yes.code, "dropped table tmp.asked" in yes.out) == (0, True)


def test_a_transaction_is_aborted_after_a_yes(lake: Lake, here: Run) -> None:
    txn = begin_insert(lake.client, lake.orders)
    assert here("txn", "abort", txn.txn_id).code == Exit.USAGE
    assert "would abort" in here("txn", "abort", txn.txn_id, "--dry-run").out
    assert here("txn", "outcome", txn.txn_id).out == "open\n"
    assert here("txn", "abort", txn.txn_id, "-y", "--reason", "stuck").code == 0
    assert here("txn", "outcome", txn.txn_id).out == "aborted: stuck\n"
    txn.__exit__(None, None, None)


def test_ctrl_c_ends_a_load_and_its_table(lake: Lake, here: Run) -> None:
    process = lake.shell.start("bench", "mixed", "--seconds", "600", "--table", "tmp.load")
    assert process.stderr is not None
    assert "on tmp.load" in process.stderr.readline()
    ended = interrupt(process)
    assert (ended.code, ended.out, ended.err) == (Exit.INTERRUPTED, "", "")
    assert here("table", "show", "tmp.load").code == Exit.NOT_FOUND


@pytest.mark.parametrize("kind", ["appends --batch 5", "mixed", "contended"])
def test_a_load_is_measured(lake: Lake, here: Run, kind: str) -> None:
    done = here("bench", *kind.split(), "--seconds", "0.3", "--writers", "4", "-o", "json")
    report = json.loads(done.out)
    assert done.code == 0
    assert report["commits"] > 0
    assert report["refusals"] == {}
    assert set(report["conflicts"]) <= {"outcome table"}
    if kind.startswith("appends"):
        assert report["commits"] == 5 * sum(each["calls"] for each in report["histogram"])
    else:
        attempts = report["commits"] + sum(report["conflicts"].values())
        assert attempts == sum(each["calls"] for each in report["histogram"])
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] <= report["latency_ms"]["max"]
    assert not any(table.name.startswith("bench_") for table in lake.client.list_tables())


# ----------------------------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("laketx ver", ["versions"]),
        ("laketx txn a", ["abort"]),
        ("laketx versions sh", ["shop.orders"]),
        ("laketx versions shop.orders ", []),
        ("laketx table drop events sh", ["shop.orders"]),
        ("laketx txn list --table ev", ["events"]),
        ("laketx table list --namespace ", ["shop", "tmp"]),
        ("laketx txn list --st", ["--state"]),
        ("laketx txn list --state=co", ["--state=committed", "--state=conflict"]),
        ("laketx txn list --state = co", ["committed", "conflict"]),
        ("laketx txn list --state =", ["open", "committed", "conflict", "aborted", "expired"]),
        ("laketx explain x --changes no", [":files"]),
        ("laketx -o json completion ", ["bash", "zsh", "fish"]),
        ("laketx help table cr", ["create"]),
        ("laketx --server 127.0.0.1:1 versions s", []),
        ("laketx nonsense ", []),
        ("laketx __", []),
        ("laketx help pin", ["pins", "ping"]),
        ("laketx show shop.orders --no-to", ["--no-totals"]),
        ("laketx serve no", [":files"]),
    ],
)
def test_what_may_stand_at_the_cursor(lake: Lake, here: Run, line: str, offers: list[str]) -> None:
    words = line.split(" ")
    done = here("__complete", str(len(words) - 1), *words)
    assert [each.partition("\t")[0] for each in done.out.splitlines()] == offers
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("words", [[], ["x"], ["99"], ["-1", "laketx"], ["1"], ["2", "laketx", "versions"]])
def test_completion_never_fails(lake: Lake, here: Run, words: list[str]) -> None:
    assert here("__complete", *words).code == 0


def test_bash_runs_the_script(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "notes.json").touch()
    script = """
        source <(laketx completion bash)
        offer() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _laketx laketx "${COMP_WORDS[COMP_CWORD]}"
            echo "${COMPREPLY[*]}"
        }
        offer laketx versions sh
        offer laketx txn list --state = co
        offer laketx explain x --changes no
    """
    path = f"{install(tmp_path / 'bin')}:{lake.shell.environment()['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        check=False,
        env=lake.shell.environment(PATH=path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.stdout, done.stderr) == ("shop.orders\ncommitted conflict\nnotes.json\n", "")


def test_bash_completes_what_is_typed(lake: Lake, tmp_path: Path) -> None:
    bin_folder = install(tmp_path / "bin")
    startup = tmp_path / "startup"
    startup.write_text(
        f"export PATH={bin_folder}:$PATH; PS1='ready> '; bind 'set enable-bracketed-paste off'\n"
        "source <(laketx completion bash)\n",
        encoding="utf-8",
    )
    shell = ["bash", "--noprofile", "--rcfile", str(startup), "-i"]
    types = [("ready> ", "laketx vers\tsho\t--lim\t1\n"), ("ready> ", "exit\n")]
    shown = lake.shell.terminal(command=shell, types=types, width=200)
    assert "overwrite" in shown.out
    assert "laketx versions shop.orders --limit 1" in shown.out


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_take_their_script(lake: Lake, tmp_path: Path, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed here")
    script = tmp_path / "script"
    script.write_text(lake.shell.run("completion", shell).out, encoding="utf-8")
    assert subprocess.run([found, "-n", str(script)], check=False, capture_output=True).stderr == b""


def test_serve_takes_the_options_of_the_service(lake: Lake) -> None:
    done = lake.shell.run("serve", "--help")
    assert (done.code, "--sessions-max" in done.out) == (0, True)


def test_a_worker_gets_the_options_that_stand_before_its_name(tmp_path: Path) -> None:
    both = [*LAKETX, "--folder", str(tmp_path), "worker", "--server", "127.0.0.1:1"]
    done = subprocess.run(both, check=False, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == Exit.USAGE
    assert "--server or --folder, not both" in done.stderr
