"""How fast `laketx ingest kafka` follows a topic, and what it does when it is killed: `make bench-ingest`.

Messages have 1 kB. Apache Kafka runs beside it on the same machine; its jars come from Maven. The words choose parts:

rate       messages a second of a topic that is full, from the first commit to the last, in JSON and in Avro, beside a
           loop that reads the same topic, makes Parquet files of it, and commits its offsets to Kafka
delay      how long a message waits until it is durable, while messages come at a steady rate
kills      the process is killed again and again while it follows; each message is a row once
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka as kafka
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.words import chosen
from laketx import Lake, Table, connect
from tests.arrow.kafka_servers import KafkaServer
from tests.arrow.registries import Registry, framed

COUNT: Final = 300_000
PARTITIONS: Final = 3
BATCH: Final = 10_000
RUNS: Final = 3
DELAY_RATE: Final = 5_000  # messages a second
DELAY_S: Final = 20
KILLS: Final = 50
BODY: Final = 850
COLUMNS: Final = (
    "id bigint, sent_us bigint, at timestamp, customer string, kind string, amount double, is_new boolean, body string"
)
AVRO: Final = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "sent_us", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "customer", "type": "string"},
        {"name": "kind", "type": "string"},
        {"name": "amount", "type": ["null", "double"]},
        {"name": "is_new", "type": "boolean"},
        {"name": "body", "type": "string"},
    ],
}
PARSED: Final = fastavro.parse_schema(AVRO)
Encode = Callable[[dict[str, Any]], bytes]


class Messages:
    """Rows of a thousand bytes, the same in every format."""

    def __init__(self) -> None:
        self._chance = random.Random(7)
        self._bodies = ["".join(self._chance.choices("abcdefghijklmnopqrst ", k=BODY)) for _ in range(1_000)]

    def row(self, number: int) -> dict[str, Any]:
        return {
            "id": number,
            "sent_us": time.time_ns() // 1_000,
            "at": 1_795_000_000_000_000 + number,
            "customer": f"customer-{number % 5_000}",
            "kind": ("view", "cart", "order")[number % 3],
            "amount": number / 7,
            "is_new": number % 2 == 0,
            "body": self._bodies[number % len(self._bodies)],
        }


def as_json(row: dict[str, Any]) -> bytes:
    day, micros = divmod(row["at"], 1_000_000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(day)) + f".{micros:06}Z"
    return json.dumps({**row, "at": at}).encode()


def avro_by(schema_id: int) -> Encode:
    def encode(row: dict[str, Any]) -> bytes:
        raw = io.BytesIO()
        fastavro.schemaless_writer(raw, PARSED, row)
        return framed(schema_id, raw.getvalue())

    return encode


def fill(server: KafkaServer, topic: str, count: int, encode: Encode) -> None:
    server.make_topic(topic, PARTITIONS)
    messages = Messages()
    for partition in range(PARTITIONS):
        numbers = range(partition, count, PARTITIONS)
        server.send(topic, (encode(messages.row(number)) for number in numbers), partition=partition)


def command(folder: Path, server: KafkaServer, topic: str, table: Table, *options: str) -> list[str]:
    words = ["--folder", str(folder), "ingest", "kafka", "--brokers", server.address, "--topic", topic]
    quick = ["--set", "session.timeout.ms=4000", "--set", "heartbeat.interval.ms=500"]
    return [sys.executable, "-m", "metaservice.cli", *words, "--table", table.name, *quick, *options]


def run(words: list[str]) -> None:
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)


def commit_times_s(lake: Lake, table: Table) -> list[tuple[float, int]]:
    """When each version was committed, and how many rows the table had then."""
    found, rows = [], 0
    for version in sorted(lake.client.list_versions(table.table_id), key=lambda one: one.version):
        rows += version.rows_added
        found.append((version.commit_time_us / 1e6, rows))
    return [one for one in found if one[1]]


def ids_once(table: Table, count: int) -> None:
    ids = table.refresh().to_arrow().column("id")
    assert sorted(ids.to_pylist()) == list(range(count)), f"{len(ids)} rows of {count} messages"


# -- rate --------------------------------------------------------------------------------------------------------------


def rate(bench: Benchmark, lake: Lake, folder: Path, server: KafkaServer, registry: Registry) -> None:
    count = scaled(COUNT, 5 * BATCH)
    schema_id = registry.add(AVRO)
    by_format: dict[str, tuple[Encode, tuple[str, ...]]] = {
        "json": (as_json, ()),
        "avro": (avro_by(schema_id), ("--registry", registry.url)),
    }
    for name, (encode, options) in by_format.items():
        fill(server, name, count, encode)
        plain, ours = [], []
        for attempt in range(RUNS):
            table = lake.create_table(f"shop.{name}_{attempt}", COLUMNS)
            run(
                command(folder, server, name, table, "--format", name, "--until-end", "--group", str(attempt), *options)
            )
            ids_once(table, count)
            times = commit_times_s(lake, table)
            (begin_s, first), (end_s, last) = times[0], times[-1]
            ours.append((last - first) / (end_s - begin_s))
            if name == "json":
                plain.append(plain_rate(server, name, f"plain-{attempt}", count, folder.parent / f"plain-{attempt}"))
        peers = {"a loop that writes Parquet files": plain} if plain else {}
        bench.add(f"messages of {name} of 1 kB, one process", ours, unit="messages/s", at_least=30_000, peers=peers)


def plain_rate(server: KafkaServer, topic: str, group: str, count: int, folder: Path) -> float:
    """What a loop reaches that keeps no promise: a crash between the file and the offsets doubles rows."""
    folder.mkdir()
    settings = {"bootstrap.servers": server.address, "group.id": group, "enable.auto.commit": False}
    consumer = kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    done, begin_s, first = 0, 0.0, 0
    while done < count:
        messages = consumer.consume(min(BATCH, count - done), 1.0)
        if not messages:
            continue
        rows = [json.loads(message.value() or b"") for message in messages]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{done}.parquet", compression="zstd")
        consumer.commit(asynchronous=False)
        done += len(messages)
        if not first:
            begin_s, first = time.perf_counter(), done
    consumer.close()
    return (done - first) / (time.perf_counter() - begin_s)


# -- delay -------------------------------------------------------------------------------------------------------------


@contextmanager
def following(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def delay(bench: Benchmark, lake: Lake, folder: Path, server: KafkaServer, registry: Registry) -> None:  # noqa: ARG001
    per_s = scaled(DELAY_RATE)
    table = lake.create_table("shop.delay", COLUMNS)
    server.make_topic("delay", 1)
    messages = Messages()
    sent_s: list[float] = []
    with following(command(folder, server, "delay", table, "--batch-seconds", "0.5")):
        server.send("delay", [as_json(messages.row(0))])
        sent_s.append(time.time())
        wait_for(table, 1)
        begin_s = time.perf_counter()
        while len(sent_s) < per_s * DELAY_S:
            due = int((time.perf_counter() - begin_s) * per_s) + 1 - len(sent_s)
            rows = [messages.row(len(sent_s) + at) for at in range(due)]
            server.send("delay", map(as_json, rows))
            sent_s += [row["sent_us"] / 1e6 for row in rows]
        wait_for(table, len(sent_s))
    ids_once(table, len(sent_s))
    delays, done = [], 1
    for commit_s, rows_then in commit_times_s(lake, table):
        delays += [commit_s - at for at in sent_s[done:rows_then]]
        done = max(done, rows_then)
    delays.sort()
    title = f"from sending to durable at {per_s:,} messages/s, batches of half a second"
    bench.add(f"{title}, median", [delays[len(delays) // 2]], unit="s")
    bench.add(f"{title}, p99", [delays[int(len(delays) * 0.99)]], unit="s", at_most=1.0)


def wait_for(table: Table, count: int) -> None:
    while table.refresh().count() < count:
        time.sleep(0.1)


# -- kills -------------------------------------------------------------------------------------------------------------


def kills(bench: Benchmark, lake: Lake, folder: Path, server: KafkaServer, registry: Registry) -> None:  # noqa: ARG001
    times = scaled(KILLS, 2)
    table = lake.create_table("shop.kills", COLUMNS)
    server.make_topic("kills", 1)
    messages, chance = Messages(), random.Random(1)
    sent, is_over = 0, threading.Event()

    def produce() -> None:
        nonlocal sent
        while not is_over.wait(0.02):
            server.send("kills", [as_json(messages.row(sent + at)) for at in range(100)])
            sent += 100

    producer = threading.Thread(target=produce)
    producer.start()
    words = command(folder, server, "kills", table, "--batch-seconds", "0.05")
    waits = []
    for _ in range(times):
        version = table.refresh().meta.head_version
        begin_s = time.perf_counter()
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while table.refresh().meta.head_version == version:
            time.sleep(0.02)
        waits.append(time.perf_counter() - begin_s)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.wait()
    is_over.set()
    producer.join()
    run([*words, "--until-end"])
    ids_once(table, sent)
    bench.add(f"from a start after a kill to the first commit ({times} kills, each message once)", waits, unit="s")


PARTS: Final = {"rate": rate, "delay": delay, "kills": kills}


def main() -> int:
    words = chosen(__doc__, PARTS)
    bench = Benchmark("ingest", "Kafka into a table", packages=["confluent-kafka", "pyarrow"])
    with scratch() as folder:
        server, registry = KafkaServer(folder), Registry()
        try:
            with connect(folder / "lake") as lake:
                for name, part in PARTS.items():
                    if not words or name in words:
                        part(bench, lake, folder / "lake", server, registry)
        finally:
            server.close()
            registry.close()
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
