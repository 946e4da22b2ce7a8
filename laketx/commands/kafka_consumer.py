"""A consumer of Kafka whose offsets are in the table: each commit has the rows and the offsets that follow them.

The table has, for each partition of the topic, the application id `kafka/GROUP/TOPIC/PARTITION`; its version is the
next offset. Whoever is assigned a partition begins there. A commit declares that it has looked these ids up: if another
process committed one of them in between, the commit loses, and this process begins again at the table's offsets.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final, TypeAlias

import confluent_kafka as kafka

from laketx.commands.dead_letters import DeadLetters
from laketx.commands.message_batches import Content, MessageFormat, Parsed
from laketx.commands.message_decoders import SchemaDecoder
from laketx.table import Table
from metaservice.client import CommitOutcomeUnknownError, ConflictError, MetaServiceError
from metaservice.client.retries import Backoff
from protos.laketx.v1 import common_pb2
from worker.arrow.write.change_streams import ChangeWrite
from worker.base.errors import InputError
from worker.commit.transaction import PLANNED_AGAIN, run_writes
from worker.commit.writes import APP_ID_CHARS_MAX, Write
from worker.formats.rejects import REFUSALS
from worker.formats.schema_registry import RegistryAwayError

POLL_S: Final = 0.2  # a signal is noticed after that time
LOOKED_EACH: Final = 64  # messages are taken between two looks at the clock
ATTEMPTS_MAX: Final = 50
BACKOFF: Final = Backoff(base_s=0.02, longest_s=2.0)
AWAY_BACKOFF: Final = Backoff(base_s=0.5, longest_s=15.0)
ANSWER_S: Final = 30.0
FIRST_ANSWER_S: Final = 10.0
AWAY: Final = (kafka.KafkaError._ALL_BROKERS_DOWN, kafka.KafkaError._RESOLVE, kafka.KafkaError._AUTHENTICATION)  # noqa: SLF001 - public names
LOG: Final = logging.getLogger("laketx.kafka")  # librdkafka's: it repeats itself many times a second
LOG.addHandler(logging.NullHandler())
LOG.propagate = False

Place: TypeAlias = tuple[str, int]  # a topic and the number of its partition


@dataclass(frozen=True)
class BatchLimits:
    """When a batch is committed: at the first of these."""

    rows: int
    bytes: int
    seconds: float


@dataclass
class Batch:
    """Messages that wait for their commit, in the order in which they arrived."""

    contents: list[Content] = field(default_factory=list)
    places: list[tuple[str, int, int]] = field(default_factory=list)  # topic, partition, offset
    ends: dict[Place, int] = field(default_factory=dict)  # the next offset of each partition
    bytes: int = 0
    begun_s: float = 0.0

    def part(self, at: slice) -> Batch:
        places = self.places[at]
        ends = {(topic, partition): offset + 1 for topic, partition, offset in places}
        return Batch(self.contents[at], places, ends)


@dataclass
class Totals:
    """The counts of what was committed since the process began."""

    messages: int = 0
    upserted: int = 0
    deleted: int = 0
    late: int = 0
    dead: int = 0
    commits: int = 0
    version: int = 0


class StoppedError(Exception):
    """The process is to end while it waits."""


class PartitionsMovedError(Exception):
    """Another process has committed messages of this batch."""


class KafkaIngest:
    """Follows a topic: messages become rows of a table, each exactly once."""

    def __init__(
        self,
        table: Table,
        settings: Mapping[str, str],
        topic: str,
        *,
        form: MessageFormat,
        limits: BatchLimits,
        from_latest: bool,
        dead_letters: DeadLetters | None,
        decoder: SchemaDecoder | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        form.check(table.meta)
        self.totals = Totals()
        self.is_stopping = False
        self._table = table
        self._topic = topic
        self._group = settings["group.id"]
        self._form = form
        self._limits = limits
        self._from_latest = from_latest
        self._dead_letters = dead_letters
        self._decoder = decoder
        self._note = note
        self._is_away = False  # no broker answers
        self._brokers = settings["bootstrap.servers"]
        self._committed: dict[Place, int | None] = {}  # of the partitions that are assigned
        self._ended: set[Place] = set()
        self._batch = Batch()
        self._app_id(topic, 0)
        own = {
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "group.protocol": "classic",  # all partitions are revoked and assigned together
            "partition.assignment.strategy": "range",
            "error_cb": self._take_failure,
        }
        self._consumer = kafka.Consumer({"client.id": "laketx", **settings, **own}, logger=LOG)

    def run(self, *, until_end: bool, report: Callable[[Totals], None]) -> None:
        """Consume until `is_stopping` is set, or until the end of every assigned partition; commit what waits."""
        self._check_topic()
        self._consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        try:
            while not self.is_stopping:
                self._take_waiting(self._consumer.poll(self._wait_s()))
                at_end = until_end and bool(self._committed) and self._ended >= self._committed.keys()
                if self._is_due() or at_end:
                    self._flush()
                    report(self.totals)
                if at_end and self._ended >= self._committed.keys():
                    return
            self._flush()
            report(self.totals)
        finally:
            self._consumer.close()

    def _check_topic(self) -> None:
        try:
            topic = self._consumer.list_topics(self._topic, timeout=FIRST_ANSWER_S).topics[self._topic]
        except kafka.KafkaException as error:
            self._consumer.close()
            text = f"no broker of {self._brokers} answers: {error.args[0].str()}"
            raise InputError("KAFKA_UNREACHABLE", text) from error
        if topic.error is not None:
            self._consumer.close()
            raise InputError("KAFKA_REFUSED", f"{self._topic}: {topic.error.str()}")

    def _take_failure(self, error: kafka.KafkaError) -> None:
        """Say once that the brokers are away; librdkafka connects again by itself."""
        if error.code() in AWAY and not self._is_away:
            self._is_away = True
            self._note(f"waiting for the brokers {self._brokers}: {error.str()}")

    # -- messages ------------------------------------------------------------------------------------------------------

    def _take_waiting(self, message: kafka.Message | None) -> None:
        """Take a message and those that have been fetched, one by one: several at once may be of two assignments."""
        begun_s = time.monotonic()
        while message is not None:
            self._take(message)
            batch, limits = self._batch, self._limits
            if len(batch.contents) >= limits.rows or batch.bytes >= limits.bytes:
                return
            if not len(batch.contents) % LOOKED_EACH and time.monotonic() > begun_s + POLL_S:
                return
            message = self._consumer.poll(0)

    def _take(self, message: kafka.Message | None) -> None:
        if message is None:
            return
        self._is_away = False
        error = message.error()
        place = (str(message.topic()), int(message.partition() or 0))
        if error is not None:
            self._take_error(error, place)
            return
        if place not in self._committed:
            return
        batch = self._batch
        if not batch.contents:
            batch.begun_s = time.monotonic()
        key, value = message.key(), message.value()
        content = Content(_bytes(key), _bytes(value))
        offset = int(message.offset() or 0)
        batch.contents.append(content)
        batch.places.append((*place, offset))
        batch.ends[place] = offset + 1
        batch.bytes += len(content.key or b"") + len(content.value or b"")
        self._ended.discard(place)

    def _take_error(self, error: kafka.KafkaError, place: Place) -> None:
        code = error.code()
        if code == kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public name
            self._ended.add(place)
        elif code == kafka.KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            raise InputError(
                "OFFSET_LOST",
                f"{place[0]}[{place[1]}] no longer has offset {self._committed.get(place)}, where the table ends: "
                "messages are lost; another --group begins anew",
            )
        elif error.fatal() or code in (
            kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
            kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
            kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            raise InputError("KAFKA_REFUSED", f"{self._topic}: {error.str()}")

    def _wait_s(self) -> float:
        if not self._batch.contents:
            return POLL_S
        return max(0.0, min(POLL_S, self._batch.begun_s + self._limits.seconds - time.monotonic()))

    def _is_due(self) -> bool:
        batch, limits = self._batch, self._limits
        return bool(batch.contents) and (
            len(batch.contents) >= limits.rows
            or batch.bytes >= limits.bytes
            or time.monotonic() >= batch.begun_s + limits.seconds
        )

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _app_id(self, topic: str, partition: int) -> str:
        app_id = f"kafka/{self._group}/{topic}/{partition}"
        if len(app_id) > APP_ID_CHARS_MAX - 10:  # room for the numbers of partitions
            raise InputError("APP_VERSION_INVALID", f"group and topic together are too long: {app_id}")
        return app_id

    def _assign(self, consumer: kafka.Consumer, partitions: list[kafka.TopicPartition]) -> None:
        """Begin at the table's offsets."""
        self._revoke(consumer, partitions)
        for one_of in partitions:
            offset = self._table.app_version(self._app_id(one_of.topic, one_of.partition))
            self._committed[one_of.topic, one_of.partition] = offset
            if offset is not None:
                one_of.offset = offset
            elif self._from_latest:
                one_of.offset = consumer.get_watermark_offsets(one_of, timeout=ANSWER_S)[1]
            else:
                one_of.offset = kafka.OFFSET_BEGINNING
        consumer.assign(partitions)

    def _revoke(self, _: kafka.Consumer, partitions: list[kafka.TopicPartition]) -> None:  # noqa: ARG002
        """Forget what waits: whoever is assigned its partitions begins at the table's offsets."""
        self._batch = Batch()
        self._committed.clear()
        self._ended.clear()

    # -- commits -------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        batch, self._batch = self._batch, Batch()
        if not batch.contents:
            return
        try:
            parsed = self._parsed(batch)
            for at in self._form.list_parts(self._table.meta, parsed):
                part = batch.part(at)
                self._commit(part, parsed[at])
                self._committed.update(part.ends)
        except StoppedError:
            self._note(
                f"{len(batch.contents)} messages are left for the next start: the schema registry doesn't answer"
            )
            return
        except PartitionsMovedError:
            self._assign(self._consumer, self._consumer.assignment())
            return
        self._store_offsets(batch)

    def _parsed(self, batch: Batch) -> Sequence[Parsed]:
        """Wait for the schema registry if it is away; the brokers keep what comes meanwhile."""
        if self._decoder is None:
            return batch.contents
        for attempt in count():
            try:
                return self._decoder.decode(batch.contents)
            except RegistryAwayError as error:
                if not attempt:
                    self._note(f"waiting for the schema registry: {error}")
                until_s = time.monotonic() + AWAY_BACKOFF.delay_s(attempt, random.random())
                while time.monotonic() < until_s and not self.is_stopping:
                    time.sleep(POLL_S)
                if self.is_stopping:
                    raise StoppedError from error
        raise AssertionError("it counts on")

    def _commit(self, batch: Batch, all_parsed: Sequence[Parsed]) -> None:
        parsed = all_parsed
        apps = [
            common_pb2.AppVersion(app_id=self._app_id(*place), version=end) for place, end in sorted(batch.ends.items())
        ]
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                time.sleep(BACKOFF.delay_s(attempt - 1, random.random()))
            self._table.refresh()
            if self._is_committed(batch):  # an answer was lost
                return
            parsed, planned = self._planned(batch, parsed, all_parsed)
            write = replace(
                planned.write.at(planned.write.meta.head_version),
                other_apps=apps,
                app_ids_read=[app.app_id for app in apps],
                is_one_call=False,
            )
            try:
                [commit, *_] = run_writes(self._table.lake, partial(_listed, write), on_conflict="fail")
            except (ConflictError, CommitOutcomeUnknownError):
                continue
            except MetaServiceError as error:
                if error.reason in PLANNED_AGAIN:
                    continue
                raise
            counts, totals = planned.counts, self.totals
            totals.messages += len(batch.contents)
            totals.upserted += counts.upserted
            totals.deleted += counts.deleted
            totals.late += counts.late
            totals.commits += 1
            totals.version = commit.version
            return
        raise InputError("BATCH_LOST", f"a batch for {self._table.name} lost {ATTEMPTS_MAX} races")

    def _is_committed(self, batch: Batch) -> bool:
        """Whether the table has the batch. Raises PartitionsMovedError if it has something else."""
        stored = {place: self._table.app_version(self._app_id(*place)) for place in batch.ends}
        if stored == batch.ends:
            return True
        if any(offset != self._committed.get(place) for place, offset in stored.items()):
            raise PartitionsMovedError
        return False

    def _planned(
        self, batch: Batch, parsed: Sequence[Parsed], all_parsed: Sequence[Parsed]
    ) -> tuple[Sequence[Parsed], ChangeWrite]:
        """The messages that rows can be made of, and their write; the others become dead letters."""
        try:
            return parsed, self._form.plan(self._table.view, parsed)
        except REFUSALS:
            if parsed is not all_parsed:
                raise
        parsed = self._readable(batch, all_parsed)
        return parsed, self._form.plan(self._table.view, parsed)

    def _readable(self, batch: Batch, parsed: Sequence[Parsed]) -> Sequence[Parsed]:
        unreadable = self._form.list_unreadable(self._table, parsed)
        if not unreadable:  # its columns have been added
            return parsed
        if self._dead_letters is None:
            at, error = unreadable[0]
            topic, partition, offset = batch.places[at]
            text = str(error).removeprefix(f"{error.reason}: ")
            raise InputError(error.reason, f"{topic}[{partition}] at offset {offset}: {text}")
        for at, error in unreadable:
            self._dead_letters.write(batch.places[at], batch.contents[at], error)
        self._dead_letters.flush()
        self.totals.dead += len(unreadable)
        dead = {at for at, _ in unreadable}
        return [message for at, message in enumerate(parsed) if at not in dead]

    def _store_offsets(self, batch: Batch) -> None:
        """Tell Kafka, too, for those who watch the group's lag; nothing depends on it."""
        offsets = [kafka.TopicPartition(topic, partition, end) for (topic, partition), end in batch.ends.items()]
        self._consumer.commit(offsets=offsets, asynchronous=True)


def _listed(write: Write) -> list[Write]:
    return [write]


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
