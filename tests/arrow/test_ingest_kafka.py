"""`laketx ingest kafka` with a broker: each message once, whatever ends the process or takes its partitions."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import fastavro
import pytest

from laketx import InputError, Lake, Table, connect
from laketx.commands import kafka_consumer
from laketx.commands.dead_letters import DeadLetterFile, DeadLetterTopic
from laketx.commands.kafka_consumer import BatchLimits, KafkaIngest
from laketx.commands.message_batches import MessageFormat
from laketx.commands.message_decoders import SchemaDecoder
from metaservice.client.retries import Backoff
from tests.arrow.brokers import Broker
from tests.arrow.followers import QUICK, follow, follower, rows_of, take
from tests.arrow.registries import Registry, framed
from worker.formats.schema_registry import SchemaRegistry, secret_from

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ingest")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with connect(folder) as made:
        yield made


# -- processes ---------------------------------------------------------------------------------------------------------


def command(folder: Path, broker: Broker, topic: str, table: Table, *options: str) -> list[str]:
    settings = [part for name, value in QUICK.items() for part in ("--set", f"{name}={value}")]
    words = ["--folder", str(folder), "ingest", "kafka", "--brokers", broker.address, "--topic", topic]
    return [sys.executable, "-m", "metaservice.cli", *words, "--table", table.name, *settings, *options]


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.long)])
def test_each_message_is_a_row_once_however_often_the_process_is_killed(
    lake: Lake, folder: Path, broker: Broker, kills: int
) -> None:
    chance = random.Random(kills)
    topic = f"killed_{kills}"
    table = lake.create_table(f"k.{topic}", "id bigint, partition int")
    sent = [0, 0]
    is_over = threading.Event()

    def produce() -> None:
        while not is_over.wait(0.05):
            for partition in (0, 1):
                size = chance.randint(1, 6)
                rows = [{"id": sent[partition] + at, "partition": partition} for at in range(size)]
                broker.send(topic, rows, partition=partition)
                sent[partition] += size

    producer = threading.Thread(target=produce)
    producer.start()
    run = command(folder, broker, topic, table, "--batch-rows", "4", "--batch-seconds", "0.05")
    try:
        for _ in range(kills):
            before = table.refresh().meta.head_version
            process = subprocess.Popen(run, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until = time.monotonic() + 30
            while table.refresh().meta.head_version <= before:  # it has begun to commit
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
            process.wait()
    finally:
        is_over.set()
        producer.join()
    last = command(folder, broker, topic, table, "--until-end")
    done = subprocess.run(last, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = sorted((row["partition"], row["id"]) for row in table.refresh().to_arrow().to_pylist())
    assert rows == [(partition, at) for partition in (0, 1) for at in range(sent[partition])]


def test_a_signal_ends_it_after_a_last_commit(lake: Lake, folder: Path, broker: Broker) -> None:
    counts = [signalled(lake, folder, broker, pause_s=0.5)]
    while counts[-1] == 20 and len(counts) < 5:  # on a busy machine, the last ten may not have arrived
        counts.append(signalled(lake, folder, broker, pause_s=4 ** len(counts)))
    assert counts[-1] == 30, counts


def signalled(lake: Lake, folder: Path, broker: Broker, *, pause_s: float) -> int:
    """Stop a process that committed 20 of 30 messages, after a pause in which the rest arrives; count its messages."""
    topic = f"stopped_{pause_s}"
    table = lake.create_table(f"k.{topic.replace('.', '_')}", "id bigint")
    broker.send(topic, [{"id": at} for at in range(30)])
    run = command(folder, broker, topic, table, "--batch-rows", "20", "--batch-seconds", "3600", "-o", "json")
    process = subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while table.refresh().meta.head_version == 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(pause_s)
    assert table.refresh().count() == 20
    os.kill(process.pid, signal.SIGTERM)
    output, failure = process.communicate(timeout=120)
    assert process.returncode == 0, failure
    messages: int = json.loads(output)["messages"]
    assert [row["id"] for row in rows_of(table)] == list(range(messages))
    return messages


@pytest.mark.long
def test_processes_of_a_group_share_the_partitions(lake: Lake, folder: Path, broker: Broker) -> None:
    table = lake.create_table("k.shared", "id bigint, partition int")
    partitions, sent = broker.partitions("shared"), 0

    def send(times: int) -> None:
        nonlocal sent
        for _ in range(times):
            for partition in partitions:
                broker.send(
                    "shared", [{"id": sent + at, "partition": partition} for at in range(5)], partition=partition
                )
            sent += 5
            time.sleep(0.3)

    run = command(folder, broker, "shared", table, "--batch-rows", "50", "--batch-seconds", "0.1", "-o", "json")
    processes = []
    for _ in range(2):
        processes.append(subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        send(25)
    for process in processes:
        send(10)
        until = time.monotonic() + 60
        while process is processes[-1] and table.refresh().count() < sent * len(partitions):
            assert time.monotonic() < until
            time.sleep(0.1)
        process.terminate()
        said, _ = process.communicate(timeout=60)
        assert json.loads(said)["messages"] > 0
    rows = sorted((row["partition"], row["id"]) for row in table.refresh().to_arrow().to_pylist())
    assert rows == [(partition, at) for partition in partitions for at in range(sent)]


# -- one process -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "profile", ["maxcompute", "row_level", pytest.param("delta_serializable", marks=pytest.mark.long)]
)
def test_a_process_that_lost_its_partition_writes_nothing_twice(lake: Lake, broker: Broker, profile: str) -> None:
    topic = f"moved_{profile}"
    table = lake.create_table(f"k.{topic}", "id bigint", profile=profile)
    broker.send(topic, [{"id": at} for at in range(100)])
    old, new = (follower(broker, lake.table(table.name), topic) for _ in range(2))
    take(old, 40)
    take(new, 25)
    new._flush()
    old._flush()  # it has what the other one committed, and more
    assert len(rows_of(table)) == 25
    follow(old)
    follow(new)
    assert [row["id"] for row in rows_of(table)] == list(range(100))


def test_a_race_between_the_look_and_the_commit_is_lost(lake: Lake, broker: Broker) -> None:
    table = lake.create_table("k.raced", "id bigint", profile="row_level")
    broker.send("raced", [{"id": at} for at in range(60)])
    old, new = (follower(broker, lake.table(table.name), "raced") for _ in range(2))
    take(old, 40)
    take(new, 25)
    looks = old._is_committed

    def look(batch: Any) -> bool:
        found = looks(batch)
        new._flush()
        return found

    old._is_committed = look  # type: ignore[method-assign]
    old._flush()
    del old._is_committed
    follow(old)
    assert [row["id"] for row in rows_of(table)] == list(range(60))


def test_messages_with_keys_are_the_rows_of_their_keys(lake: Lake, broker: Broker) -> None:
    table = lake.create_table("k.keyed", "id bigint, name string", primary_key=["id"])
    broker.send("keyed", [{"id": at % 5, "name": str(at)} for at in range(23)])
    broker.send("keyed", [None], key=b'{"id": 3}')
    ingest = follow(follower(broker, table, "keyed"))
    assert rows_of(table) == [{"id": key, "name": name} for key, name in [(0, "20"), (1, "21"), (2, "22"), (4, "19")]]
    assert (ingest.totals.messages, ingest.totals.upserted) == (24, 4)


@pytest.mark.parametrize("key", [[], ["id"]])
def test_a_column_that_a_message_lacks_has_its_default(lake: Lake, broker: Broker, key: list[str]) -> None:
    """Whatever other messages of the batch have, and however they write its name."""
    topic = f"defaults_{len(key)}"
    columns = "id bigint, day date DEFAULT '2026-11-01', price decimal(9,2) DEFAULT 1.5, name string DEFAULT 'x'"
    table = lake.create_table(f"k.{topic}", columns, primary_key=key)
    broker.send(topic, [{"id": 1}, {"id": 2, "NAME": None, "day": "2026-11-02", "price": 2}, {"id": 3, "day": None}])
    if key:
        broker.send(topic, [None], key=b'{"id": 2}')
    follow(follower(broker, table, topic))
    first, last = date(2026, 11, 1), Decimal("1.50")
    expected: list[dict[str, Any]] = [
        {"id": 1, "day": first, "price": last, "name": "x"},
        {"id": 2, "day": date(2026, 11, 2), "price": Decimal("2.00"), "name": None},
        {"id": 3, "day": None, "price": last, "name": "x"},
    ]
    assert rows_of(table) == [row for row in expected if not key or row["id"] != 2]


def test_messages_set_the_columns_that_they_have(lake: Lake, broker: Broker) -> None:
    """Of a table with partial updates: as many commits as there are changes of columns, and nothing twice later."""
    table = lake.create_table(
        "k.partial", "id bigint, a int DEFAULT 7, b string", primary_key=["id"], properties={"merge.engine": "partial"}
    )
    broker.send("partial", [{"id": 1, "a": 1}, {"id": 2, "A": 2}, {"id": 1, "b": "x"}, {"id": 3, "a": None, "b": "y"}])
    broker.send("partial", [None], key=b'{"id": 2}')
    broker.send("partial", [{"id": 2, "b": "z"}, {"id": 1, "b": None}, {"id": 1, "a": 5}, {"id": 2, "a": 8}])
    broker.send("partial", [None], key=b'{"id": 9, "b": "of a key"}')
    ingest = follow(follower(broker, table, "partial"))
    expected = [{"id": 1, "a": 5, "b": None}, {"id": 2, "a": 8, "b": "z"}, {"id": 3, "a": None, "b": "y"}]
    assert rows_of(table) == expected
    assert (ingest.totals.messages, ingest.totals.commits) == (10, 5)
    again = follow(follower(broker, table, "partial"))
    assert (rows_of(table), again.totals.messages) == (expected, 0)


def test_changes_by_operation_and_sequence(lake: Lake, broker: Broker) -> None:
    table = lake.create_table("k.changes", "id bigint, lsn bigint", primary_key=["id"])
    broker.send("changes", [{"id": 1, "lsn": 9, "op": "c"}, {"id": 2, "lsn": 3, "op": "c"}])
    form = MessageFormat("json", op="op", sequence="lsn")
    follow(follower(broker, table, "changes", form=form))
    broker.send("changes", [{"id": 1, "lsn": 5, "op": "d"}, {"id": 2, "lsn": 4, "op": "d"}])
    ingest = follow(follower(broker, table, "changes", form=form))
    assert rows_of(table) == [{"id": 1, "lsn": 9}]
    assert (ingest.totals.late, ingest.totals.deleted) == (1, 1)


def test_debezium_with_new_columns_and_dead_letters(lake: Lake, broker: Broker, tmp_path: Path) -> None:
    table = lake.create_table("k.customers", "id int, first_name string, lsn bigint", primary_key=["id"])
    lines = (Path(__file__).parent / "customers.jsonl").read_bytes().splitlines()
    bad = [b"{", b"\xff", b'{"op": "x"}']
    broker.send("customers", [bad[0], *[line or None for line in lines[:5]], bad[1], *lines[6:], bad[2]])
    letters = DeadLetterFile(str(tmp_path / "dead.jsonl"))
    form = MessageFormat("debezium", sequence="lsn", merge_schema=True)
    ingest = follow(follower(broker, table, "customers", form=form, dead_letters=letters))
    letters.close()
    assert [row["email"] for row in rows_of(table)] == ["sally@acme.com", "edward@walker.com"]
    dead = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [(one["offset"], one["reason"]) for one in dead] == [
        (0, "MESSAGE_INVALID"),
        (6, "MESSAGE_INVALID"),
        (8, "OPERATION_UNKNOWN"),
    ]
    assert (dead[0]["value"], dead[1]["value_base64"]) == ("{", "/w==")
    assert ingest.totals.dead == 3


def test_dead_letters_in_a_topic(lake: Lake, broker: Broker) -> None:
    table = lake.create_table("k.letters", "id bigint NOT NULL, day date")
    broker.send("letters", [{"id": 1, "day": "2026-11-01"}, {"id": None}, {"id": 2, "day": 5}, {"id": 3, "other": 1}])
    letters = DeadLetterTopic({"bootstrap.servers": broker.address}, "dead")
    follow(follower(broker, table, "letters", dead_letters=letters))
    lines = lake.create_table("k.dead", "offset bigint, reason string, topic string, partition int, value string")
    partitions = broker.partitions("dead")
    with pytest.raises(InputError, match=r"dead\[\d\] at offset 0: k.dead has no column"):
        follow(follower(broker, lines, "dead", partitions))
    lines.add_columns("error string, key string")
    follow(follower(broker, lines, "dead", partitions))
    reasons = sorted((row["offset"], row["reason"]) for row in lines.refresh().to_arrow().to_pylist())
    assert reasons == [(1, "NULL_NOT_ALLOWED"), (2, "VALUE_INVALID"), (3, "COLUMN_UNKNOWN")]
    assert [row["id"] for row in rows_of(table)] == [1]


def test_messages_that_are_gone_are_not_skipped(lake: Lake, broker: Broker) -> None:
    table = lake.create_table("k.gone", "id bigint")
    broker.send("gone", [{"id": at} for at in range(10)])
    table.append([{"id": 0}], app_id="kafka/g/gone/0", app_version=500)
    with pytest.raises(InputError, match=r"gone\[0\] no longer has offset 500") as error:
        follow(follower(broker, table, "gone"))
    assert error.value.reason == "OFFSET_LOST"


def test_brokers_that_do_not_answer_are_named_once(
    lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """At the start they end it; later it waits. Lines of the client of Kafka, many a second, are left out."""
    monkeypatch.setattr(kafka_consumer, "FIRST_ANSWER_S", 0.5)
    table = lake.create_table("ingest_away", "id bigint")
    notes: list[str] = []
    ingest = KafkaIngest(
        table,
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"},
        "away",
        form=MessageFormat("json"),
        limits=BatchLimits(1, 1, 1),
        from_latest=False,
        dead_letters=None,
        note=notes.append,
    )
    with pytest.raises(InputError, match=r"no broker of 127\.0\.0\.1:1 answers") as error:
        ingest.run(until_end=True, report=lambda _: None)
    assert error.value.reason == "KAFKA_UNREACHABLE"
    for _ in range(2):
        ingest._take_failure(kafka.KafkaError(kafka.KafkaError._ALL_BROKERS_DOWN))
    assert len([note for note in notes if note.startswith("waiting for the brokers 127.0.0.1:1: ")]) == 1
    assert capfd.readouterr().err == ""


def test_a_group_can_begin_at_the_end(lake: Lake, broker: Broker) -> None:
    table = lake.create_table("k.latest", "id bigint")
    broker.send("latest", [{"id": at} for at in range(10)])
    ingest = follower(broker, table, "latest", from_latest=True)
    broker.send("latest", [{"id": at} for at in range(10, 15)])
    until = time.monotonic() + 20
    while len(rows_of(table)) < 5:
        ingest._take(ingest._consumer.poll(0.1))
        ingest._flush()
        assert time.monotonic() < until
    assert [row["id"] for row in rows_of(table)] == list(range(10, 15))


def test_a_table_without_a_key_takes_no_changes(lake: Lake, broker: Broker) -> None:
    table = lake.create_table("k.no_key", "id bigint")
    with pytest.raises(InputError, match="has no primary key"):
        follower(broker, table, "none", form=MessageFormat("debezium"))
    assert not rows_of(table)


# -- schemas of a registry ---------------------------------------------------------------------------------------------

EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
    ],
}
WIDER = {**EVENT, "fields": [*EVENT["fields"], {"name": "tags", "type": {"type": "array", "items": "string"}}]}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def avro(schema_id: int, schema: Any, **fields: Any) -> bytes:
    raw = io.BytesIO()
    fastavro.schemaless_writer(raw, fastavro.parse_schema(schema), fields)
    return framed(schema_id, raw.getvalue())


def decoder(registry: Registry, form: str) -> SchemaDecoder:
    return SchemaDecoder(SchemaRegistry(registry.url, secret_from("", None)), form, time.monotonic)


def test_messages_of_avro_by_their_schemas(lake: Lake, broker: Broker, registry: Registry, tmp_path: Path) -> None:
    table = lake.create_table("k.avro", "id bigint, at timestamp, price decimal(9,2)", primary_key=["id"])
    at = datetime(2026, 11, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    old, new = registry.add(EVENT), registry.add(WIDER)
    strange = registry.add({"type": "record", "name": "Self", "fields": [{"name": "next", "type": "Self"}]})
    keys = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    first = avro(old, EVENT, id=1, at=at, price=Decimal("1.25"))
    sent = [
        first,
        avro(old, EVENT, id=2, at=at, price=None),
        b'{"id": 5}',
        framed(old, first[5:-1]),
        framed(4_711, first[5:]),
        framed(strange, b"\0"),
        avro(new, WIDER, id=3, at=at, price=None, tags=["x", "y"]),
        first,
    ]
    broker.send("avro", sent)
    broker.send("avro", [None], key=avro(registry.add(keys), keys, id=2))
    letters = DeadLetterFile(str(tmp_path / "dead.jsonl"))
    form = MessageFormat("avro", merge_schema=True)
    options: dict[str, Any] = {"form": form, "dead_letters": letters, "decoder": decoder(registry, "avro")}
    ingest = follow(follower(broker, table, "avro", **options))
    letters.close()
    assert rows_of(table) == [
        {"id": 1, "at": at, "price": Decimal("1.25"), "tags": None},
        {"id": 3, "at": at, "price": None, "tags": ["x", "y"]},
    ]
    dead = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [(one["offset"], one["reason"]) for one in dead] == [
        (2, "MESSAGE_INVALID"),
        (3, "MESSAGE_INVALID"),
        (4, "SCHEMA_UNKNOWN"),
        (5, "SCHEMA_INVALID"),
    ]
    assert ingest.totals.messages == 9
    assert registry.asked.count(f"/schemas/ids/{old}") == 1


def test_a_registry_that_does_not_answer_is_waited_for(
    lake: Lake, broker: Broker, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_consumer, "AWAY_BACKOFF", Backoff(base_s=0.01, longest_s=0.02))
    table = lake.create_table("k.waits", "id bigint")
    number = registry.add('{"type": "object"}', "JSON")
    broker.send("waits", [framed(number, b'{"id": 1}')])
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        registry.status = 200

    ingest = follower(broker, table, "waits", decoder=decoder(registry, "json"), note=note)
    registry.status = 503
    follow(ingest)
    assert rows_of(table) == [{"id": 1}]
    assert len(notes) == 1
    broker.send("waits", [framed(number, b'{"id": 2}')])
    ingest = follower(broker, table, "waits", decoder=decoder(registry, "json"), note=notes.append)
    registry.status, ingest.is_stopping = 503, True
    follow(ingest)  # it ends without a commit
    registry.status = 200
    assert "1 messages are left" in notes[-1]
    follow(follower(broker, table, "waits", decoder=decoder(registry, "json")))
    assert [row["id"] for row in rows_of(table)] == [1, 2]


def test_envelopes_of_debezium_in_avro(lake: Lake, broker: Broker, registry: Registry) -> None:
    row = {
        "type": "record",
        "name": "Value",
        "namespace": "pg.public.customers",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "day", "type": {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}},
            {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "pg.public.customers",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
        ],
    }
    number = registry.add(envelope)
    table = lake.create_table("k.dbz_avro", "id int, lsn bigint", primary_key=["id"])

    def message(op: str, lsn: int, before: Any = None, after: Any = None) -> bytes:
        return avro(number, envelope, op=op, source={"lsn": lsn}, before=before, after=after)

    one = {"id": 1, "day": 19_000, "at": 1_500_000, "note": "a large text"}
    unsent = {**one, "day": 19_001, "note": "__debezium_unavailable_value"}
    two = {**one, "id": 2, "at": None}
    messages = [message("c", 1, after=one), message("c", 2, after=two), message("u", 3, before=one, after=unsent)]
    broker.send("dbz_avro", [*messages, message("d", 4, before=two), None])
    form = MessageFormat("debezium", sequence="lsn", merge_schema=True)
    follow(follower(broker, table, "dbz_avro", form=form, decoder=decoder(registry, "debezium")))
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000)  # noqa: DTZ001 - a timestamp_ntz
    expected = {"id": 1, "lsn": 3, "day": date(2022, 1, 9), "at": at, "note": "a large text"}
    assert rows_of(table) == [expected]


def test_messages_of_protobuf_by_their_schema(lake: Lake, broker: Broker, registry: Registry) -> None:
    number = registry.add('syntax = "proto3"; message Order { int64 id = 1; optional string note = 2; }', "PROTOBUF")
    table = lake.create_table("k.protobuf", "id bigint")
    broker.send("protobuf", [framed(number, b"\0\x08\x07\x12\x01x"), framed(number, b"\x02\0\x08\x08")])
    form = MessageFormat("protobuf", merge_schema=True)
    with pytest.raises(
        InputError, match=r"protobuf\[0\] at offset 0: schema \d+: it is a schema of PROTOBUF, not of AVRO"
    ):
        follow(follower(broker, table, "protobuf", form=form, decoder=decoder(registry, "avro")))
    follow(follower(broker, table, "protobuf", form=form, decoder=decoder(registry, "protobuf")))
    assert rows_of(table) == [{"id": 7, "note": "x"}, {"id": 8, "note": None}]
