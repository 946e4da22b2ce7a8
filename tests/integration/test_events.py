"""`laketx events serve` against a real service and a real receiver: nothing is lost, whoever is killed or away."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.event_receiver import receiver
from laketx import connect
from metaservice.cli.event_delivery import Sender, Target
from metaservice.cli.event_feed import Feed
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.conformance.play import new_uuid7
from tests.conformance.server import ROOT
from tests.integration.service import PRINCIPAL, Service, Stubs, data_file, service, wait_until
from tests.integration.webhook import SECRET, receiving, url


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs]]:
    with service(tmp_path_factory.mktemp("events") / "db", "--purge-delay-ms", "0") as found:
        yield found


@pytest.fixture
def sender(running: tuple[Service, Stubs], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in a folder of its own, under cursors of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(to: str, *flags: str) -> subprocess.Popen[str]:
        (tmp_path / "secret").write_bytes(SECRET + b"\n")
        command = [sys.executable, "-m", "metaservice.cli", "--server", running[0].address, "events", "serve"]
        command += ["--to", to, "--name", tmp_path.name, "--poll", "0.05", "--secret-file", str(tmp_path / "secret")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (tmp_path / "notes.txt").open("ab") as notes:
            process = subprocess.Popen([*command, *flags], cwd=tmp_path, env=environment, stderr=notes, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


def lose_a_race(stubs: Stubs, table_id: str) -> tuple[str, str]:
    """The loser and the winner."""
    loser, winner = stubs.begin(table_id), stubs.begin(table_id)
    for txn_id in (winner, loser):
        file = data_file(txn_id, "k", common_pb2.FILE_KIND_DELTA)
        stubs.commit(txn_id, common_pb2.Change(table_id=table_id, files=[file]))
    return loser, winner


def wait_for_start(tmp_path: Path) -> None:
    wait_until(lambda: "sends to" in (tmp_path / "notes.txt").read_text(encoding="utf-8"))


def test_commits_and_conflicts_arrive_as_cloud_events(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    stubs = running[1]
    before = stubs.create("before")
    stubs.append(before)
    with receiving() as found:
        process = sender(url(found))
        wait_for_start(tmp_path)
        keyed = stubs.create("events.keyed".replace(".", "_"), keyed=True)
        loser, winner = lose_a_race(stubs, keyed)
        stubs.append(before, message="Grüße")
        wait_until(
            lambda: found.of("conflict") != [] and found.versions(keyed) == [0, 1] and found.versions(before) == [2]
        )
        process.terminate()
        assert process.wait(30) == 0
    [conflict] = found.of("conflict")
    assert (conflict["id"], conflict["subject"]) == (loser, "events_keyed")
    assert conflict["data"]["conflict"]["winner_txn_id"] == winner
    assert conflict["data"]["conflict"]["rule"] == "outcome_table"
    assert found.versions(before) == [2], "what was there before the first start is not told"
    commit = next(each for each in found.of("commit") if each["tableid"] == before)
    assert commit["specversion"] == "1.0"
    assert commit["id"] == f"{before}/2"
    assert commit["source"].startswith("urn:laketx:")
    assert commit["time"].endswith("Z")
    assert (commit["data"]["operation"], commit["data"]["commit_message"]) == ("insert", "Grüße")
    assert set(found.kinds) == {"application/cloudevents+json"}
    assert all(found.signed)


def test_commits_arrive_as_events_of_openlineage(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a-token\n")
    with connect(f"laketx://{running[0].address}", warehouse=str(tmp_path / "files")) as lake, receiving() as found:
        orders = lake.create_table("lineage.orders", "id bigint, day bigint")
        days = lake.create_table("lineage.days", "day bigint, n bigint", primary_key=["day"])
        orders.append([{"id": 1, "day": 1}, {"id": 2, "day": 1}])
        view = lake.create_materialized_view(
            "lineage.view", "SELECT day, count(*) AS n FROM lineage.orders GROUP BY day"
        )
        statement = "INSERT INTO lineage.days SELECT day, count(*) FROM lineage.orders GROUP BY day"
        lake.create_periodic_task("lineage.task", statement, schedule="every hour").run()
        with lake.transaction() as txn:
            txn.table("lineage.days").update({"n": "n + 1"}, where="day = 1")
            txn.table("lineage.orders").append([{"id": 3, "day": 2}])
        heads = {
            (each.name, str(number))
            for each in (orders, days, view.table)
            for number in range(each.refresh().meta.head_version + 1)
        }
        flags = ("--openlineage", "main", "--from-start", "--once", "--tables", "lineage.*")
        process = sender(url(found), *flags, "--token-file", str(tmp_path / "token"))
        assert process.wait(30) == 0
        assert sender(url(found), "--openlineage", "main", "--batch", "2").wait(30) == 2
    assert set(found.kinds) == {"application/json"}
    assert set(found.tokens) == {"Bearer a-token"}

    def versions(datasets: list[Any]) -> list[tuple[str, str]]:
        return [(each["name"], each["facets"]["version"]["datasetVersion"]) for each in datasets]

    told = {}
    for event in found.events:
        assert (event["eventType"], event["job"]["namespace"], event["producer"][:4]) == ("COMPLETE", "main", "urn:")
        [output] = versions(event["outputs"])
        told[output] = (event["job"]["name"], versions(event["inputs"]), event["run"]["runId"])
    assert set(told) == heads, "every commit, once"
    assert told["lineage.orders", "1"][:2] == ("insert lineage.orders", [])
    assert told["lineage.view", "1"][:2] == ("refresh lineage.view", [("lineage.orders", "1")])
    assert told["lineage.days", "1"][:2] == ("lineage.task", [("lineage.orders", "1")])
    assert told["lineage.days", "2"][:2] == ("update lineage.days", [("lineage.days", "1")])
    assert told["lineage.orders", "2"][1] == [("lineage.days", "1")], "its transaction read that"
    assert told["lineage.days", "2"][2] == told["lineage.orders", "2"][2], "one transaction is one run"
    task = next(each for each in found.events if each["job"]["name"] == "lineage.task")
    assert task["job"]["facets"]["sql"]["query"] == statement
    assert task["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert [each["name"] for each in task["outputs"][0]["facets"]["schema"]["fields"]] == ["day", "n"]


class Overtaken(MetaClient):
    """Something happens after each list of the tables."""

    then: Callable[[], object] = staticmethod(lambda: None)

    def list_tables(self, *args: Any, **named: Any) -> Iterator[catalog_pb2.Table]:
        yield from list(super().list_tables(*args, **named))
        happens, self.then = self.then, lambda: None
        happens()


@pytest.mark.parametrize("dropped", [False, True])
def test_a_conflict_in_a_table_made_since_the_last_look_at_tables_is_told(
    running: tuple[Service, Stubs], tmp_path: Path, dropped: bool
) -> None:
    service, stubs = running
    losers: list[str] = []

    def happens() -> None:
        table_id = stubs.create(f"just_made_{dropped}", keyed=True)
        losers.append(lose_a_race(stubs, table_id)[0])
        if dropped:
            stubs.catalog.DropTable(catalog_pb2.DropTableRequest(table_id=table_id))

    stopped = threading.Event()
    with receiving() as found, Overtaken(service.address) as client:
        sender = Sender(Target(url(found), SECRET), stopped, print, lambda: time.time_ns() // 1_000)
        feed = Feed(
            client, sender, tmp_path.name, ["just_*"], tmp_path / "state.json",
            from_start=False, keep_ms=60_000, conflicts=True, branches=False, note=print, stopped=stopped,
        )  # fmt: skip
        client.then = happens
        feed.round()
        sender.close()
    assert [(each["id"], each["subject"]) for each in found.of("conflict")] == [(losers[0], f"just_made_{dropped}")]


def test_what_happens_to_branches_is_told_from_the_last_event_on(
    running: tuple[Service, Stubs], tmp_path: Path
) -> None:
    stopped, state = threading.Event(), tmp_path / "state.json"
    with receiving() as found, MetaClient(running[0].address, principal="ann") as client:
        sender = Sender(Target(url(found), SECRET), stopped, print, lambda: time.time_ns() // 1_000)

        def told(*patterns: str) -> list[tuple[str, str, str]]:
            """By a feed that begins anew, as after a kill."""
            found.events.clear()
            Feed(
                client, sender, tmp_path.name, patterns, state,
                from_start=False, keep_ms=60_000, conflicts=False, branches=True, note=print, stopped=stopped,
            ).round()  # fmt: skip
            return [(each["id"], each["subject"], each["data"]["kind"]) for each in found.of("branch")]

        client.create_branch("before")
        assert told() == []
        client.create_branch("told", comment="why")
        client.create_branch("below", parent="told")
        client.refresh_branch("below", txn_id=(refresh := new_uuid7()))
        client.merge_branch("below", keep=True)
        client.merge_branch("below")
        client.drop_branch("told")
        client.create_branch("short", keep_ms=1_000)
        assert told("some.*") == []
        wait_until(lambda: not [one for one in client.list_branches() if one.name == "short"])
        kinds = ["created", "created", "refreshed", "merged", "merged", "dropped", "created", "expired"]
        assert [kind for _, _, kind in told()] == kinds
        events = [each["data"] for each in found.of("branch")]
        assert [each.get("kept", False) for each in events] == [False] * 3 + [True] + [False] * 4
        assert events[2]["txn_id"] == refresh
        assert (events[0]["comment"], events[1]["parent"]) == ("why", "told")
        assert [each["principal"]["name"] for each in events[:-1]] == ["ann"] * 7
        assert events[-1]["principal"]["name"] == ""
        assert [int(each["number"]) for each in events] == list(range(2, 10)), "the first is before the feed began"
        assert told() == []
        client.drop_branch("before")
        assert [kind for _, _, kind in told()] == ["dropped"]
        sender.close()


def test_nothing_is_lost_when_the_sender_is_killed(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    stubs = running[1]
    kept = stubs.create("killed")
    short = stubs.create("short_lived")
    stop = threading.Event()
    losers: list[str] = []
    made: list[str] = []

    def write() -> None:
        keyed = stubs.create("killed_keyed", keyed=True)
        made.append(keyed)
        while not stop.is_set():
            stubs.append(kept)
            stubs.append(short)
            losers.append(lose_a_race(stubs, keyed)[0])
            time.sleep(0.02)

    with receiving() as found:
        process = sender(url(found))
        wait_for_start(tmp_path)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for pause_s in (0.9, 0.3, 1.1, 0.05, 0.7):
                time.sleep(pause_s)
                process.kill()
                process.wait(30)
                process = sender(url(found))
        finally:
            stop.set()
            writer.join()
        heads = {table_id: stubs.list_versions(table_id)[-1].version for table_id in (kept, short, *made)}
        wait_until(
            lambda: (
                all(set(found.versions(each)) >= set(range(1, head + 1)) for each, head in heads.items())
                and {each["id"] for each in found.of("conflict")} >= set(losers)
            )
        )
    assert 0 in found.versions(made[0]), "the creation of a new table too"
    ids = {(each["source"], each["id"]): each for each in found.events}
    assert all(ids[each["source"], each["id"]]["data"] == each["data"] for each in found.events), "repeats are equal"
    assert len(heads) == 3
    assert len(losers) > 5


def test_what_was_not_sent_yet_is_kept(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Of two tables that keep nothing but the newest version, the one that is followed keeps what was not sent."""
    stubs = running[1]
    followed, other = stubs.create("followed"), stubs.create("left_alone")
    for table_id in (followed, other):
        alteration = common_pb2.Alteration(set_properties={"data.retain.hours": "0"})
        request = catalog_pb2.AlterTableRequest(
            txn_id=new_uuid7(), table_id=table_id, alteration=alteration, principal=PRINCIPAL
        )
        stubs.catalog.AlterTable(request)
    with receiving() as found:
        process = sender(url(found), "--tables", "followed")
        wait_for_start(tmp_path)
        stubs.append(followed)
        wait_until(lambda: found.versions(followed) == [2])
        process.kill()
        process.wait(30)
        for _ in range(5):
            stubs.append(followed)
            stubs.append(other)
        wait_until(lambda: stubs.list_versions(other)[0].version > 1)
        sender(url(found), "--tables", "followed")
        wait_until(lambda: set(found.versions(followed)) == {2, 3, 4, 5, 6, 7})
    assert found.of("gap") == []


def test_a_receiver_that_is_away_is_waited_for(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    stubs = running[1]
    table_id = stubs.create("away")
    with receiving() as found:
        found.answer = lambda _: 503 if found.requests < 3 else 204
        sender(url(found), "--tables", "awa*")
        wait_for_start(tmp_path)
        for _ in range(3):
            stubs.append(table_id)
        wait_until(lambda: found.versions(table_id) == [1, 2, 3])
    assert {each["subject"] for each in found.events} == {"away"}


def test_an_event_that_is_refused_is_put_aside(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path, monkeypatch: Any
) -> None:
    stubs = running[1]
    table_id = stubs.create("poisoned")
    with receiving() as found:
        found.answer = lambda events: 422 if any(each["id"].endswith("/2") for each in events) else 204
        sender(url(found), "--tables", "poisoned", "--batch", "10", "--no-conflicts")
        wait_for_start(tmp_path)
        for _ in range(3):
            stubs.append(table_id)
        wait_until(lambda: sorted(set(found.versions(table_id))) == [1, 3])
    [letter] = [json.loads(line) for line in (tmp_path / "laketx-events-dead.jsonl").read_text().splitlines()]
    assert (letter["status"], letter["event"]["id"]) == (422, f"{table_id}/2")
    assert set(found.kinds) == {"application/cloudevents-batch+json"}


def test_a_receiver_that_is_gone_ends_the_command(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    stubs = running[1]
    table_id = stubs.create("gone")
    with receiving() as found:
        found.answer = lambda _: 410
        process = sender(url(found), "--tables", "gone")
        wait_for_start(tmp_path)
        stubs.append(table_id)
        assert process.wait(30) == 1
    assert "RECEIVER_GONE" in (tmp_path / "notes.txt").read_text(encoding="utf-8")


def test_commits_of_a_table_dropped_meanwhile_are_told_as_a_gap(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    stubs = running[1]
    table_id = stubs.create("dropped")
    with receiving() as found:
        process = sender(url(found), "--tables", table_id)
        wait_for_start(tmp_path)
        stubs.append(table_id)
        wait_until(lambda: found.versions(table_id) == [1])
        process.terminate()
        process.wait(30)
        stubs.append(table_id)
        stubs.catalog.DropTable(catalog_pb2.DropTableRequest(table_id=table_id))
        sender(url(found), "--tables", table_id)
        wait_until(lambda: found.of("gap") != [])
    [gap] = found.of("gap")
    assert gap["data"] == {"from_version": 2, "to_version": 2, "reason": "DROPPED"}


def test_https_is_verified(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("openssl is not there")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    table_id = running[1].create("private")
    with receiving() as found:
        found.server.socket = context.wrap_socket(found.server.socket, server_side=True)
        to = f"https://localhost:{found.port}/"
        distrusting = sender(to, "--tables", "private")
        wait_for_start(tmp_path)
        running[1].append(table_id)
        wait_until(lambda: "certificate verify failed" in (tmp_path / "notes.txt").read_text(encoding="utf-8"))
        assert found.events == []
        distrusting.send_signal(signal.SIGTERM)
        distrusting.wait(30)
        sender(to, "--tables", "private", "--ca", str(certificate))
        wait_until(lambda: found.versions(table_id) == [1])


def test_plain_http_stays_on_this_machine(sender: Callable[..., subprocess.Popen[str]]) -> None:
    assert sender("http://events.example.com/").wait(30) == 2


def test_the_example_takes_an_event_once(
    running: tuple[Service, Stubs], sender: Callable[..., subprocess.Popen[str]], tmp_path: Path, capfd: Any
) -> None:
    server = receiver(0, SECRET)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        stubs = running[1]
        sender(f"http://127.0.0.1:{server.server_address[1]}/", "--tables", "example")
        wait_for_start(tmp_path)
        table_id = stubs.create("example")
        stubs.append(table_id)
        said: list[str] = []

        def has_said() -> bool:
            said.append(capfd.readouterr().out)
            return "example@1: insert, +10 rows" in "".join(said)

        wait_until(has_said)
        assert "".join(said).count("example@1:") == 1
    finally:
        server.shutdown()
        server.server_close()
