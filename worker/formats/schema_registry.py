"""Schemas of messages from a schema registry, by the HTTP API that Confluent's has and others share.

A message names its schema by an id, and a schema never changes. So each is asked for once, within bounds of time and
bytes, with the schemas that it refers to.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote

from metaservice.shared.foreign_bytes import ForeignUnusable
from metaservice.shared.outbound_requests import SCHEMES, ask_json
from worker.base.errors import InputError

ASK_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 4 << 20
REFERENCES_MAX: Final = 100  # of one schema, those of its references among them
ALL_BYTES_MAX: Final = 16 << 20
ABSENT: Final = 404
REFUSED: Final = (400, 401, 403, 405, 422)
OF_SCHEMAS: Final = ("SCHEMA_UNKNOWN", "SCHEMA_INVALID")  # reasons that concern one schema alone
ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryAwayError(Exception):
    """The registry doesn't answer, or is out of order: it may be asked again."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry has it; `references` are the names and texts of others, each after those it needs."""

    kind: str  # "AVRO", "PROTOBUF", "JSON"
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry:
    """Asks a registry. Its secret is `user:password` or a token, read when it is needed: it may change."""

    def __init__(self, url: str, secret: Callable[[], str], ca_file: str = "") -> None:
        if not url.startswith(SCHEMES) or "@" in url:  # no password in clear
            raise InputError("ADDRESS_INVALID", f"{url} is no address of a schema registry, such as https://host:8081")
        self.url = url.rstrip("/")
        self._secret = secret
        self._ca_file = ca_file

    def fetch(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with its references.

        Raises RegistryAwayError, and InputError: with one of OF_SCHEMAS as its reason, or if the registry refuses.
        """
        answer = self._ask(f"/schemas/ids/{schema_id}", f"the registry has no schema {schema_id}")
        kind, text = str(answer.get("schemaType") or "AVRO"), _text(answer)
        references = {} if kind == "JSON" else self._references(answer, len(text))
        return RegisteredSchema(kind, text, tuple(references.items()))

    def _references(self, answer: dict[str, Any], size: int) -> dict[str, str]:
        """Depth first: each comes after those that it needs."""
        texts: dict[str, str] = {}
        levels = [_referred(answer)]
        waiting: list[tuple[str, str]] = []
        seen: set[str] = set()
        while levels:
            each = next(levels[-1], None)
            if each is None:
                levels.pop()
                if waiting:
                    name, text = waiting.pop()
                    texts[name] = text
                continue
            name, path = each
            if name in seen:
                continue
            seen.add(name)
            answer = self._ask(path, f"the registry lacks {name}, to which the schema refers")
            text = _text(answer)
            size += len(text)
            if len(seen) > REFERENCES_MAX or size > ALL_BYTES_MAX:
                raise InputError("SCHEMA_INVALID", f"the schema refers to more than {REFERENCES_MAX} others")
            waiting.append((name, text))
            levels.append(_referred(answer))
        return texts

    def _ask(self, path: str, absent: str) -> dict[str, Any]:
        headers = {"accept": ACCEPT, **_authorization(self._secret())}
        try:
            return ask_json(self.url + path, ASK_S, ANSWER_BYTES_MAX, headers=headers, ca_file=self._ca_file)
        except ForeignUnusable as error:
            cause = error.__cause__
            if isinstance(cause, HTTPError):
                cause.close()
                if cause.code == ABSENT:
                    raise InputError("SCHEMA_UNKNOWN", absent) from error
                if cause.code in REFUSED:
                    raise InputError("REGISTRY_REFUSED", f"{self.url} refuses to answer: {cause}") from error
            elif cause is None:  # its answer is too large, or no object
                raise InputError("SCHEMA_INVALID", str(error)) from error
            raise RegistryAwayError(str(error)) from error


def _text(answer: dict[str, Any]) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise InputError("SCHEMA_INVALID", "the registry's answer has no schema")
    return text


def _referred(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of the schemas that one refers to, and where they are."""
    for each in answer.get("references") or ():
        try:
            name, subject, version = str(each["name"]), str(each["subject"]), int(each["version"])
        except (TypeError, KeyError, ValueError) as error:
            raise InputError("SCHEMA_INVALID", f"the schema has a reference that can't be read: {error}") from error
        yield name, f"/subjects/{quote(subject, safe='')}/versions/{version}"


def _authorization(secret: str) -> dict[str, str]:
    if not secret:
        return {}
    if ":" in secret:
        return {"authorization": "Basic " + base64.b64encode(secret.encode()).decode()}
    return {"authorization": f"Bearer {secret}"}


def secret_from(text: str, path: str | None) -> Callable[[], str]:
    """Read it from a file at each request, or take the text."""

    def read() -> str:
        if not path:
            return text
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("PATH_INVALID", f"{path}: {error}") from error

    return read
