"""Apache Kafka itself: a broker that is its own controller, in a process of its own, with its jars from Maven."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tools.toolchain import maven_command

VERSION: Final = "4.4.0"
CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qg"
POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.laketx.tests</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""
SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=200
group.min.session.timeout.ms=1000
"""
LOG: Final = logging.getLogger("laketx.tests.kafka")
LOG.disabled = True  # the client of Kafka says again and again that nobody listens
JAVA: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaServer:
    """Starts when it is made; `restart` starts it again on the same port, with what it has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._classes = f"{jars(folder)}/*"
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self._settings = folder / "server.properties"
        self._settings.write_text(SETTINGS.format(port=port, controller=controller, folder=folder), encoding="utf-8")
        words = ["format", "--cluster-id", CLUSTER, "--config", str(self._settings)]
        subprocess.run(self._java("kafka.tools.StorageTool", *words), check=True, capture_output=True, timeout=120)
        self._process = self._start()
        self._admin = AdminClient({"bootstrap.servers": self.address}, logger=LOG)
        settings = {"bootstrap.servers": self.address, "linger.ms": 5, "enable.idempotence": True}
        self._producer = kafka.Producer(settings, logger=LOG)

    def _java(self, name: str, *words: str) -> list[str]:
        java = shutil.which("java")
        assert java is not None, "Spark's tests need it, too"
        return [java, *JAVA, "-cp", self._classes, name, *words]

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "server.log").open("ab") as log:
            started = subprocess.Popen(self._java("kafka.Kafka", str(self._settings)), stdout=log, stderr=log)
        until = time.monotonic() + 120
        admin = AdminClient({"bootstrap.servers": self.address}, logger=LOG)
        while True:
            try:
                admin.list_topics(timeout=2)
            except kafka.KafkaException:
                assert started.poll() is None, (self._folder / "server.log").read_text(encoding="utf-8")
                assert time.monotonic() < until
            else:
                return started

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        self._process = self._start()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()

    def make_topic(self, name: str, partitions: int = 1) -> None:
        made = self._admin.create_topics([NewTopic(name, partitions, 1)])
        made[name].result(timeout=60)

    def send(self, topic: str, values: Iterable[Any], *, partition: int = 0, key: bytes | None = None) -> None:
        """Send values as JSON, bytes as they are; None is a tombstone."""
        for value in values:
            content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self._producer.produce(topic, content, key=key, partition=partition)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def values(self, topic: str, partitions: int) -> list[bytes]:
        """All messages that a topic has."""
        consumer = kafka.Consumer(
            {"bootstrap.servers": self.address, "group.id": "reader", "enable.auto.commit": False}
        )
        places = [kafka.TopicPartition(topic, at, kafka.OFFSET_BEGINNING) for at in range(partitions)]
        many = sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places)
        consumer.assign(places)
        values: list[bytes] = []
        while len(values) < many:
            values += [message.value() or b"" for message in consumer.consume(1_000, 1.0) if message.error() is None]
        consumer.close()
        return values


def jars(folder: Path) -> Path:
    """A folder with Kafka's jars, by Maven and its cache."""
    (folder / "pom.xml").write_text(POM, encoding="utf-8")
    found = folder / "jars"
    words = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={found}"]
    command = [*maven_command(), "--quiet", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout
    return found


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
