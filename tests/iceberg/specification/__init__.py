"""Answers of the REST catalog beside the specification's OpenAPI file.

`rest-catalog-open-api.yaml` is Apache Iceberg's own, licensed under Apache-2.0, as of commit 7f879b1 of its repository.
It is unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

FILE: Final = Path(__file__).resolve().parent / "rest-catalog-open-api.yaml"
DOCUMENT: Final = "urn:iceberg"
ERROR: Final = {"$ref": f"{DOCUMENT}#/components/schemas/IcebergErrorResponse"}
OURS: Final = frozenset({"/health"})
OVERLAPPING: Final = ("PrimitiveTypeValue",)  # a text can be a date, too


class SpecificationError(AssertionError):
    """An answer that the specification doesn't have."""


def check(method: str, path: str, status: int, body: bytes) -> None:
    """Raises where an answer is not as the specification has it."""
    if path in OURS:
        return
    responses = responses_of(method, path)
    found = responses.get(str(status), responses.get(f"{status // 100}XX"))
    if found is None and (responses or status < 400):
        raise SpecificationError(f"{method} {path}: the specification has no answer {status}, but {sorted(responses)}")
    schema = ERROR if found is None else schema_of(found)
    if method == "HEAD" or schema is None:
        if body:
            raise SpecificationError(f"{method} {path}: the answer {status} has a body")
        return
    for error in validator(json.dumps(schema)).iter_errors(json.loads(body)):
        raise SpecificationError(f"{method} {path}: {status}: {error.json_path}: {error.message[:500]}")


def responses_of(method: str, path: str) -> Mapping[str, Any]:
    """The answers of an operation by their status; empty where the specification has no such operation."""
    for template, operations in paths().items():
        if re.fullmatch(template, path):
            found = operations.get(method.lower(), {}).get("responses", {})
            return {str(status): answer for status, answer in found.items()}
    return {}


def schema_of(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of an answer's body; none: it has no body."""
    while "$ref" in answer:
        answer = pointed(answer["$ref"])
    content = answer.get("content", {}).get("application/json")
    if content is None:
        return None
    if content["schema"] == {"$ref": "#/components/schemas/ErrorModel"}:  # a slip of the file's, at views: its examples
        return ERROR  # have the model within an answer, as all other errors do
    return absolute(content["schema"])


@cache
def document() -> Mapping[str, Any]:
    found: dict[str, Any] = yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    for name in OVERLAPPING:
        schema = found["components"]["schemas"][name]
        schema["anyOf"] = schema.pop("oneOf")
    return found


@cache
def paths() -> Mapping[str, Any]:
    """The operations by a pattern of their paths; fixed parts come before parameters."""
    listed = sorted(document()["paths"].items(), key=lambda one: one[0].count("{"))
    return {re.sub(r"\{[^}]*\}", "[^/]+", template): operations for template, operations in listed}


@cache
def validator(schema: str) -> Draft202012Validator:
    known = Registry().with_resource(DOCUMENT, DRAFT202012.create_resource(document()))
    return Draft202012Validator(json.loads(schema), registry=known)


def pointed(reference: str) -> Mapping[str, Any]:
    found: Any = document()
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    known: Mapping[str, Any] = found
    return known


def absolute(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema that stands alone: its references name the document."""
    text = json.dumps(schema)
    known: Mapping[str, Any] = json.loads(text.replace('"$ref": "#/', f'"$ref": "{DOCUMENT}#/'))
    return known
