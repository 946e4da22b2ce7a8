"""`laketx ingest kafka` with Apache Kafka itself: groups, kills, a broker that dies, and messages that have to wait."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from laketx import Lake, Table, connect
from tests.arrow.followers import QUICK
from tests.arrow.kafka_servers import KafkaServer
from tests.arrow.registries import Registry, framed

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
PARTITIONS = 6
KILLS = 12
SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": name, "type": kind} for name, kind in (("partition", "int"), ("id", "long"), ("body", "string"))
    ],
}
PARSED = fastavro.parse_schema(SCHEMA)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    made = KafkaServer(tmp_path_factory.mktemp("kafka"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ingest")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with connect(folder) as made:
        yield made


def event(schema_id: int, partition: int, number: int, body: str = "") -> bytes:
    raw = io.BytesIO()
    fastavro.schemaless_writer(raw, PARSED, {"partition": partition, "id": number, "body": body})
    return framed(schema_id, raw.getvalue())


def key_of(value: bytes) -> tuple[int, int]:
    fields: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), PARSED, None)
    return fields["partition"], fields["id"]


def start(folder: Path, server: KafkaServer, registry: Registry, table: Table, *options: str) -> subprocess.Popen[str]:
    words = ["--folder", str(folder), "ingest", "kafka", "--brokers", server.address, "--topic", table.name]
    settings = [part for name, value in QUICK.items() for part in ("--set", f"{name}={value}")]
    words += ["--table", table.name, "--format", "avro", "--registry", registry.url, *settings, *options]
    return subprocess.Popen(
        [sys.executable, "-m", "metaservice.cli", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


def wait_until(is_done: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < until
        time.sleep(0.1)


def finish(process: subprocess.Popen[str]) -> None:
    _, failed = process.communicate(timeout=300)
    assert process.returncode == 0, failed


def found_in(table: Table) -> list[tuple[int, int]]:
    columns = table.refresh().to_arrow().to_pydict()
    return sorted(zip(columns["partition"], columns["id"], strict=True))


def test_each_message_is_a_row_once_whoever_dies(
    lake: Lake, folder: Path, server: KafkaServer, registry: Registry
) -> None:
    """Processes of one group join, are killed and leave, and the broker is killed, while messages come."""
    chance = random.Random(7)
    table = lake.create_table("k.group", "partition int, id bigint, body string", profile="row_level")
    server.make_topic(table.name, PARTITIONS)
    number = registry.add(SCHEMA)
    sent = [0] * PARTITIONS
    is_over = threading.Event()
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            while not is_over.wait(0.05):
                for partition in range(PARTITIONS):
                    many = chance.randint(1, 20)
                    values = [event(number, partition, sent[partition] + at) for at in range(many)]
                    server.send(table.name, values, partition=partition)
                    sent[partition] += many
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    producer = threading.Thread(target=produce)
    producer.start()
    options = ("--batch-rows", "50", "--batch-seconds", "0.1")
    processes = [start(folder, server, registry, table, *options) for _ in range(2)]
    try:
        for turn in range(KILLS):
            before = table.refresh().meta.head_version
            until = time.monotonic() + 120
            while table.refresh().meta.head_version < before + 4:
                for process in [one for one in processes if one.poll() is not None]:
                    _, said = process.communicate()
                    assert (
                        "KAFKA_UNREACHABLE" in said
                    )  # it began while the broker was dead: a supervisor starts it again
                    processes.remove(process)
                    processes.append(start(folder, server, registry, table, *options))
                assert time.monotonic() < until
                time.sleep(0.1)
            time.sleep(chance.uniform(0, 0.5))
            if turn == KILLS // 2:
                server.kill()
                time.sleep(1)
                server.restart()
            victim = processes.pop(chance.randrange(len(processes)))
            victim.kill() if turn % 3 else victim.terminate()
            victim.communicate(timeout=120)
            processes.append(start(folder, server, registry, table, *options))
            if turn == 1:
                processes.append(start(folder, server, registry, table, *options))
    finally:
        is_over.set()
        producer.join()
        for process in processes:
            process.terminate()
    assert failures == []
    for process in processes:
        process.communicate(timeout=300)
        assert process.returncode in (0, -signal.SIGTERM)  # it may have been about to start
    finish(start(folder, server, registry, table, "--until-end"))
    expected = sorted(key_of(value) for value in server.values(table.name, PARTITIONS))
    assert sorted(set(expected)) == [
        (partition, at) for partition in range(PARTITIONS) for at in range(sent[partition])
    ]
    assert found_in(table) == expected


def test_messages_wait_in_kafka_while_the_registry_is_away(
    lake: Lake, folder: Path, server: KafkaServer, registry: Registry
) -> None:
    """200 MB of messages: the process keeps what Kafka's client fetches ahead, and no more."""
    table = lake.create_table("k.waiting", "partition int, id bigint, body string")
    server.make_topic(table.name, 2)
    number, many, body = registry.add(SCHEMA), 100_000, "x" * 1_000
    for partition in (0, 1):
        server.send(table.name, (event(number, partition, at, body) for at in range(many)), partition=partition)
    registry.status = 503
    process = start(folder, server, registry, table, "--until-end", "--set", "queued.max.messages.kbytes=16384")
    asked = len(registry.asked)
    wait_until(lambda: len(registry.asked) >= asked + 3)
    peak = memory_peak(process.pid)
    registry.status = 200
    wait_until(lambda: table.refresh().meta.head_version > 0)
    finish(process)
    assert peak < 400 << 20
    assert found_in(table) == [(partition, at) for partition in (0, 1) for at in range(many)]


def memory_peak(pid: int) -> int:
    """The most bytes of memory that a process has had."""
    status: dict[str, Any] = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    )
    return int(status["VmHWM"].split()[0]) << 10
