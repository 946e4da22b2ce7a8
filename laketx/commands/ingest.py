"""`laketx ingest kafka`: messages of a topic become rows of a table, each exactly once. No Spark here."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from laketx.commands.dead_letters import DeadLetterFile, DeadLetters, DeadLetterTopic
from laketx.commands.kafka_consumer import BatchLimits, KafkaIngest, Totals
from laketx.commands.message_batches import MessageFormat
from laketx.commands.message_decoders import SchemaDecoder
from laketx.lake import Lake
from laketx.table import Table
from metaservice.cli.failures import usage_failure
from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from worker.formats.schema_registry import SchemaRegistry, secret_from
from worker.services.commands import command_errors, warehouse_of

REPORT_EVERY_S: Final = 10.0


def run_kafka(
    session: Session,
    brokers: str,
    topic: str,
    table: str,
    group: str,
    form: str,
    registry: str | None,
    registry_secret_file: str | None,
    registry_ca_file: str | None,
    op: str | None,
    sequence: str | None,
    soft_delete: str | None,
    merge_schema: bool,
    begin: str,
    batch_rows: int,
    batch_bytes: int,
    batch_seconds: float,
    dead_letters: str | None,
    dead_letter_topic: str | None,
    until_end: bool,
    kafka_settings: Sequence[tuple[str, str]],
    warehouse: str | None,
) -> None:
    if form == "debezium" and op is not None:
        raise usage_failure("Debezium's messages say their operation themselves", next_step="leave out --op")
    if merge_schema and form == "json":
        raise usage_failure(
            "messages of JSON say no types: --merge-schema", next_step="laketx table alter adds columns"
        )
    if form in ("avro", "protobuf") and registry is None:
        raise usage_failure(f"--format {form} needs --registry", next_step="such as: --registry https://registry:8081")
    if registry is None and (registry_secret_file or registry_ca_file):
        raise usage_failure("the secret and the authorities are of a registry", next_step="name it: --registry URL")
    brokers_of = {**dict(kafka_settings), "bootstrap.servers": brokers}
    place = warehouse_of(session, warehouse)
    with command_errors(), Lake(session.connect(), place, None, user=session.settings.user) as lake:
        decoder = None
        if registry is not None:
            secret = session.environment.get("LAKETX_REGISTRY_SECRET", "")
            schemas = SchemaRegistry(registry, secret_from(secret, registry_secret_file), registry_ca_file or "")
            decoder = SchemaDecoder(schemas, form, time.monotonic)
        letters = _dead_letters(dead_letters, dead_letter_topic, brokers_of)
        ingest = KafkaIngest(
            Table(lake, find_table(lake.client, table)),
            {**brokers_of, "group.id": group},
            topic,
            form=MessageFormat(form, op, sequence, soft_delete, merge_schema),
            limits=BatchLimits(batch_rows, batch_bytes, batch_seconds),
            from_latest=begin == "latest",
            dead_letters=letters,
            decoder=decoder,
            note=session.note,
        )
        try:
            with _stopped_by_signals(ingest):
                ingest.run(until_end=until_end, report=_reporter(session, table))
        finally:
            if letters is not None:
                letters.close()
    session.done(_text(ingest.totals, topic, table), _answer(ingest.totals))


def _dead_letters(path: str | None, topic: str | None, settings: dict[str, str]) -> DeadLetters | None:
    if path is not None and topic is not None:
        raise usage_failure("dead letters go to a file or to a topic", next_step="leave out one of both")
    if topic is not None:
        return DeadLetterTopic(settings, topic)
    return None if path is None else DeadLetterFile(path)


@contextmanager
def _stopped_by_signals(ingest: KafkaIngest) -> Iterator[None]:
    """A signal ends the loop after the commit of what waits."""

    def stop(*_: Any) -> None:
        ingest.is_stopping = True

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _reporter(session: Session, table: str) -> Any:
    """A line every few seconds: how many messages a second, and the version of the table."""
    last = [time.monotonic(), 0.0]

    def report(totals: Totals) -> None:
        seconds = time.monotonic() - last[0]
        if seconds >= REPORT_EVERY_S:
            rate = (totals.messages - last[1]) / seconds
            session.note(
                f"{totals.messages} messages, {rate:.0f} a second, {totals.dead} dead letters, "
                f"{table} is at version {totals.version}"
            )
            last[:] = [time.monotonic(), totals.messages]

    return report


def _text(totals: Totals, topic: str, table: str) -> str:
    parts = f"{totals.upserted} rows written, {totals.deleted} deleted, {totals.late} late, {totals.dead} dead letters"
    return f"ingested {totals.messages} messages of {topic} into {table}: {parts}"


def _answer(totals: Totals) -> dict[str, object]:
    return dict(vars(totals))
