"""A broker of Kafka in this process: the one that librdkafka has for tests, which speaks the wire protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import confluent_kafka as kafka


class Broker:
    """A broker and a producer of its messages."""

    def __init__(self) -> None:
        self._producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "linger.ms": 5})
        [broker] = self._producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def send(self, topic: str, values: Iterable[Any], *, partition: int = 0, key: bytes | None = None) -> None:
        """Send values as JSON, bytes as they are; None is a tombstone."""
        for value in values:
            content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self._producer.produce(topic, content, key=key, partition=partition)
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def partitions(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions."""
        return sorted(self._producer.list_topics(topic, timeout=10).topics[topic].partitions)
