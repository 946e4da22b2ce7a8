"""Followers of topics in this process, and what they left in their tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import confluent_kafka as kafka

from laketx import Table
from laketx.commands.kafka_consumer import BatchLimits, KafkaIngest
from laketx.commands.message_batches import MessageFormat
from tests.arrow.brokers import Broker

QUICK = {"session.timeout.ms": "4000", "heartbeat.interval.ms": "200"}  # the broker waits 3 s for a group to gather


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.refresh().to_arrow().to_pylist(), key=lambda row: row["id"])


def follower(broker: Broker, table: Table, topic: str, partitions: Sequence[int] = (0,), **options: Any) -> KafkaIngest:
    """A process that follows partitions of a topic, without its group: they are assigned here."""
    form = options.pop("form", MessageFormat("json"))
    settings = {"bootstrap.servers": broker.address, "group.id": "g", **QUICK}
    limits = BatchLimits(options.pop("rows", 1_000), 1 << 30, 60)
    given = {"from_latest": False, "dead_letters": None, **options}
    found = KafkaIngest(table, settings, topic, form=form, limits=limits, **given)
    found._assign(found._consumer, [kafka.TopicPartition(topic, partition) for partition in partitions])
    return found


def take(ingest: KafkaIngest, count: int) -> None:
    """Have it take so many messages, or those up to the end."""
    until = time.monotonic() + 20
    while len(ingest._batch.contents) < count and not ingest._ended >= ingest._committed.keys():
        ingest._take(ingest._consumer.poll(0.1))
        assert time.monotonic() < until


def follow(ingest: KafkaIngest) -> KafkaIngest:
    """Have it take and commit all messages."""
    take(ingest, 1 << 30)
    ingest._flush()
    ingest._consumer.close()
    return ingest
