"""Messages that no row can be made of: each is a line of JSON with the reason, in a file or in a topic of Kafka."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, Protocol

import confluent_kafka as kafka

from laketx.commands.message_batches import Content
from worker.base.errors import InputError

ANSWER_S: Final = 30.0


class DeadLetters(Protocol):
    """The target of dead letters; flushed ones are durable."""

    def write(self, place: tuple[str, int, int], content: Content, error: InputError) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class DeadLetterFile:
    """A file to which lines are appended."""

    def __init__(self, path: str) -> None:
        try:
            self._file: IO[str] = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - open until the end
        except OSError as error:
            raise InputError("PATH_INVALID", f"{path}: {error.strerror}") from error

    def write(self, place: tuple[str, int, int], content: Content, error: InputError) -> None:
        self._file.write(json.dumps(document_of(place, content, error), ensure_ascii=False) + "\n")

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class DeadLetterTopic:
    """A topic of the same brokers."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._producer = kafka.Producer({"client.id": "laketx", **settings, "enable.idempotence": True})
        self._failed: kafka.KafkaError | None = None

    def write(self, place: tuple[str, int, int], content: Content, error: InputError) -> None:
        text = json.dumps(document_of(place, content, error), ensure_ascii=False)
        self._producer.produce(self._topic, text.encode(), key=content.key, on_delivery=self._note)

    def _note(self, error: kafka.KafkaError | None, _: kafka.Message) -> None:
        self._failed = self._failed or error

    def flush(self) -> None:
        left = self._producer.flush(ANSWER_S)
        if left or self._failed is not None:
            reason = "no answer" if self._failed is None else self._failed.str()
            raise InputError("KAFKA_REFUSED", f"{self._topic} took no dead letters: {reason}")

    def close(self) -> None:
        self._producer.flush(ANSWER_S)


def document_of(place: tuple[str, int, int], content: Content, error: InputError) -> dict[str, object]:
    """Return the message, its place and why it was refused; bytes that are no text are base64."""
    topic, partition, offset = place
    text = str(error).removeprefix(f"{error.reason}: ")
    document = {"topic": topic, "partition": partition, "offset": offset, "reason": error.reason, "error": text}
    for name, content_bytes in (("key", content.key), ("value", content.value)):
        if content_bytes is None:
            document[name] = None
            continue
        try:
            document[name] = content_bytes.decode()
        except UnicodeDecodeError:
            document[f"{name}_base64"] = b64encode(content_bytes).decode()
    return document
