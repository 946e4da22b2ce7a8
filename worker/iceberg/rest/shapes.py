"""Shapes of requests' bodies, as the REST catalog's specification has them. They are checked before anything else.

A property that isn't required may be null, as clients send it. Meanings of values, and filters of scans, are checked
later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from worker.base.errors import InputError

Shape = Callable[[Any, str], None]  # of a value, and where it stands
SHOWN_CHARS: Final = 60
LONGS: Final = range(-(1 << 63), 1 << 63)


def check_shape(body: Any, shape: Shape) -> None:
    """Raise InputError if a body has another shape."""
    shape(body, "")


def _unlike(path: str, expected: str, value: Any) -> InputError:
    text = repr(value)
    shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
    where = path or "the request"
    return InputError("ICEBERG_REQUEST", f"{where} is {shown}; the specification has {expected} there")


def anything(_value: Any, _path: str) -> None:
    """Any value."""


def text(value: Any, path: str) -> None:
    if not isinstance(value, str):
        raise _unlike(path, "a text", value)


def flag(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        raise _unlike(path, "true or false", value)


def whole(value: Any, path: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value not in LONGS:
        raise _unlike(path, "a whole number of 64 bits", value)


def one_of(*words: str) -> Shape:
    def check(value: Any, path: str) -> None:
        if value not in words:
            raise _unlike(path, " or ".join(words), value)

    return check


def optional(shape: Shape) -> Shape:
    def check(value: Any, path: str) -> None:
        if value is not None:
            shape(value, path)

    return check


def listed(shape: Shape) -> Shape:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, list):
            raise _unlike(path, "a list", value)
        for at, element in enumerate(value):
            shape(element, f"{path}[{at}]")

    return check


def distinct(value: Any, path: str) -> None:
    """A list of texts without repeats."""
    listed(text)(value, path)
    if len({*value}) < len(value):
        raise _unlike(path, "a list without repeats", value)


def mapping(shape: Shape) -> Shape:
    """An object with any names."""

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise _unlike(path, "an object", value)
        for name, member in value.items():
            shape(member, _below(path, name))

    return check


def record(needed: Mapping[str, Shape], allowed: Mapping[str, Shape] | None = None) -> Shape:
    """An object with these properties, and others that are ignored."""
    shapes = {**needed, **{name: optional(shape) for name, shape in (allowed or {}).items()}}

    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise _unlike(path, "an object", value)
        for name in needed:
            if name not in value:
                raise InputError("ICEBERG_REQUEST", f"{path or 'the request'} lacks {name}")
        for name, shape in shapes.items():
            if name in value:
                shape(value[name], _below(path, name))

    return check


def chosen(name: str, shapes: Mapping[str, Shape]) -> Shape:
    """An object whose shape depends on one of its properties. An unknown value of it is refused later."""
    any_kind = record({name: text})

    def check(value: Any, path: str) -> None:
        any_kind(value, path)
        shapes.get(value[name], any_kind)(value, path)

    return check


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# -- parts -------------------------------------------------------------------------------------------------------------


def _type(value: Any, path: str) -> None:
    if not isinstance(value, str):
        TYPES(value, path)


FIELD: Final = record({"id": whole, "name": text, "type": _type, "required": flag}, {"doc": text})
TYPES: Final = chosen(
    "type",
    {
        "struct": record({"fields": listed(FIELD)}),
        "list": record({"element-id": whole, "element": _type, "element-required": flag}),
        "map": record({"key-id": whole, "key": _type, "value-id": whole, "value": _type, "value-required": flag}),
    },
)
SCHEMA: Final = record(
    {"type": one_of("struct"), "fields": listed(FIELD)}, {"schema-id": whole, "identifier-field-ids": listed(whole)}
)
TEXTS: Final = mapping(text)
NAMESPACE: Final = listed(text)
IDENTIFIER: Final = record({"namespace": NAMESPACE, "name": text})
SPEC: Final = record(
    {"fields": listed(record({"source-id": whole, "transform": text, "name": text}, {"field-id": whole}))},
    {"spec-id": whole},
)
OPERATION: Final = record({"operation": text})


def _summary(value: Any, path: str) -> None:
    OPERATION(value, path)
    TEXTS(value, path)


SORT_FIELD: Final = record(
    {
        "source-id": whole,
        "transform": text,
        "direction": one_of("asc", "desc"),
        "null-order": one_of("nulls-first", "nulls-last"),
    }
)
ORDER: Final = record({"order-id": whole, "fields": listed(SORT_FIELD)})
SNAPSHOT: Final = record(
    {"snapshot-id": whole, "timestamp-ms": whole, "summary": _summary},
    {
        "parent-snapshot-id": whole,
        "sequence-number": whole,
        "manifest-list": text,
        "first-row-id": whole,
        "added-rows": whole,
        "schema-id": whole,
    },
)
VERSION: Final = record(
    {
        "version-id": whole,
        "timestamp-ms": whole,
        "schema-id": whole,
        "summary": TEXTS,
        "representations": listed(chosen("type", {"sql": record({"sql": text, "dialect": text})})),
        "default-namespace": NAMESPACE,
    },
    {"default-catalog": text},
)
UPDATES: Final = listed(
    chosen(
        "action",
        {
            "assign-uuid": record({"uuid": text}),
            "upgrade-format-version": record({"format-version": whole}),
            "add-schema": record({"schema": SCHEMA}, {"last-column-id": whole}),
            "set-current-schema": record({"schema-id": whole}),
            "add-spec": record({"spec": SPEC}),
            "set-default-spec": record({"spec-id": whole}),
            "add-sort-order": record({"sort-order": ORDER}),
            "set-default-sort-order": record({"sort-order-id": whole}),
            "add-snapshot": record({"snapshot": SNAPSHOT}),
            "set-snapshot-ref": record(
                {"ref-name": text, "type": one_of("tag", "branch"), "snapshot-id": whole},
                {"max-ref-age-ms": whole, "max-snapshot-age-ms": whole, "min-snapshots-to-keep": whole},
            ),
            "remove-snapshots": record({"snapshot-ids": listed(whole)}),
            "remove-snapshot-ref": record({"ref-name": text}),
            "set-location": record({"location": text}),
            "set-properties": record({"updates": TEXTS}),
            "remove-properties": record({"removals": listed(text)}),
            "add-view-version": record({"view-version": VERSION}),
            "set-current-view-version": record({"view-version-id": whole}),
        },
    )
)
REQUIREMENTS: Final = listed(
    chosen(
        "type",
        {
            "assert-table-uuid": record({"uuid": text}),
            "assert-view-uuid": record({"uuid": text}),
            "assert-ref-snapshot-id": record({"ref": text}, {"snapshot-id": whole}),
            "assert-last-assigned-field-id": record({"last-assigned-field-id": whole}),
            "assert-current-schema-id": record({"current-schema-id": whole}),
            "assert-last-assigned-partition-id": record({"last-assigned-partition-id": whole}),
            "assert-default-spec-id": record({"default-spec-id": whole}),
            "assert-default-sort-order-id": record({"default-sort-order-id": whole}),
        },
    )
)

# -- requests ----------------------------------------------------------------------------------------------------------

CREATE_NAMESPACE: Final = record({"namespace": NAMESPACE}, {"properties": TEXTS})
NAMESPACE_PROPERTIES: Final = record({}, {"removals": distinct, "updates": TEXTS})
CREATE_TABLE: Final = record(
    {"name": text, "schema": SCHEMA},
    {"location": text, "partition-spec": SPEC, "write-order": ORDER, "stage-create": flag, "properties": TEXTS},
)
REGISTER_TABLE: Final = record({"name": text, "metadata-location": text}, {"overwrite": flag})
COMMIT_TABLE: Final = record({"requirements": REQUIREMENTS, "updates": UPDATES}, {"identifier": IDENTIFIER})
COMMIT_TRANSACTION: Final = record(
    {"table-changes": listed(record({"identifier": IDENTIFIER, "requirements": REQUIREMENTS, "updates": UPDATES}))}
)
RENAMING: Final = record({"source": IDENTIFIER, "destination": IDENTIFIER})
CREATE_VIEW: Final = record(  # Iceberg's Java leaves out properties, which the specification requires
    {"name": text, "schema": SCHEMA, "view-version": VERSION}, {"location": text, "properties": TEXTS}
)
COMMIT_VIEW: Final = record({"updates": UPDATES}, {"identifier": IDENTIFIER, "requirements": REQUIREMENTS})
PLAN: Final = record(
    {},
    {
        "snapshot-id": whole,
        "select": listed(text),
        "case-sensitive": flag,
        "use-snapshot-schema": flag,
        "start-snapshot-id": whole,
        "end-snapshot-id": whole,
        "stats-fields": listed(text),
        "min-rows-requested": whole,
    },
)
TASK: Final = record({"plan-task": text})
COUNTER: Final = record({"unit": text, "value": whole})
TIMER: Final = record({"time-unit": text, "count": whole, "total-duration": whole})


def _measured(value: Any, path: str) -> None:
    is_timer = isinstance(value, dict) and "time-unit" in value
    (TIMER if is_timer else COUNTER)(value, path)


MEASURED: Final = {"report-type": text, "table-name": text, "snapshot-id": whole, "metrics": mapping(_measured)}
SCAN_REPORT: Final = record(
    MEASURED
    | {"filter": anything, "schema-id": whole}
    | {"projected-field-ids": listed(whole), "projected-field-names": listed(text)},
    {"metadata": TEXTS},
)
COMMIT_REPORT: Final = record(MEASURED | {"sequence-number": whole, "operation": text}, {"metadata": TEXTS})


def METRICS(value: Any, path: str) -> None:  # noqa: N802 - the name of a shape
    is_commit = isinstance(value, dict) and "sequence-number" in value
    (COMMIT_REPORT if is_commit else SCAN_REPORT)(value, path)
