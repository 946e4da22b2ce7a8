"""Views that Iceberg's clients make and replace, as the views that MetaService keeps: queries of Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.iceberg.commits.columns import columns_of
from worker.iceberg.commits.requests import refused
from worker.iceberg.commits.requirements import UnmetError
from worker.iceberg.metadata.views import COMMENT, DIALECT, QUERY_COLUMNS, shown_version, view_schema, view_uuid

FORMAT: Final = 1
LAST: Final = -1  # as an id: what the request adds
Json = Mapping[str, Any]


def new_view(name: str, body: Json, no_namespace: str) -> catalog_pb2.View:
    """The view that a createView asks for. `no_namespace` stands for the tables that are in none."""
    try:
        if body.get("location"):
            raise refused("a view has no place of its own: leave out the location")
        return _view(name, body["schema"], body["view-version"], body.get("properties") or {}, no_namespace)
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unreadable(error) from error


def replaced_view(now: catalog_pb2.View, body: Json, no_namespace: str) -> catalog_pb2.View:
    """What a replaceView makes of the view.

    A client sends no version or schema that the view has already.
    """
    try:
        for one in body.get("requirements") or ():
            _check_requirement(now, one)
        updates: Sequence[Json] = body.get("updates") or ()
        versions = [one["view-version"] for one in updates if one["action"] == "add-view-version"]
        schemas = [one["schema"] for one in updates if one["action"] == "add-schema"]
        version = versions[-1] if versions else shown_version(now, no_namespace)
        properties = _kept(now)
        for one in updates:
            _check_update(now, one, version)
            if one["action"] == "set-properties":
                properties |= one["updates"]
            elif one["action"] == "remove-properties":
                properties = {name: text for name, text in properties.items() if name not in one["removals"]}
        schema = schemas[-1] if schemas else view_schema(now)
        if version["schema-id"] not in (LAST, schema["schema-id"]):
            raise refused(f"the version has the schema {version['schema-id']}, which the view doesn't have")
        found = _view(now.name, schema, version, properties, no_namespace)
        if not versions:
            found.text = now.text
        return found
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unreadable(error) from error


def _view(name: str, schema: Json, version: Json, properties: Mapping[str, str], no_namespace: str) -> catalog_pb2.View:
    kept = {one: str(value) for one, value in properties.items()}
    comment, names = kept.pop(COMMENT, ""), kept.pop(QUERY_COLUMNS, "")
    catalog, namespace = version.get("default-catalog") or "", list(version["default-namespace"])
    columns = [
        catalog_pb2.ViewColumn(name=one.name, type=one.type, nullable=one.nullable, comment=one.comment)
        for one in columns_of({"fields": schema["fields"]})
    ]
    return catalog_pb2.View(
        name=name,
        text=_query(version),
        columns=columns,
        query_columns=names.split(",") if names and names.count(",") == len(columns) - 1 else [],
        comment=comment,
        properties=kept,
        catalog=catalog,
        namespace=[] if namespace == [no_namespace] and not catalog else namespace,
    )


def _query(version: Json) -> str:
    given = version["representations"]
    if len(given) != 1 or given[0]["dialect"].lower() != DIALECT:
        dialects = ", ".join(sorted(str(one["dialect"]) for one in given))
        raise refused(f"a view has one query, of the dialect {DIALECT}; this one has {dialects or 'none'}")
    return str(given[0]["sql"])


def _kept(now: catalog_pb2.View) -> dict[str, str]:
    named = {COMMENT: now.comment, QUERY_COLUMNS: ",".join(now.query_columns)}
    return dict(now.properties) | {name: text for name, text in named.items() if text}


def _check_requirement(now: catalog_pb2.View, one: Json) -> None:
    if one["type"] != "assert-view-uuid":
        raise refused(f"a requirement of the kind {one['type']} is not supported")
    if one["uuid"].lower() != view_uuid(now):
        raise UnmetError(f"{now.name} is another view than the one that was loaded: load it again")


def _check_update(now: catalog_pb2.View, one: Json, version: Json) -> None:
    """Refuses what a replacement doesn't do."""
    match one:
        case {"action": "add-view-version" | "add-schema" | "set-properties" | "remove-properties"}:
            pass
        case {"action": "set-current-view-version", "view-version-id": number}:
            if number not in (LAST, version["version-id"]):
                raise refused("a view has its newest version alone: it can't go back to an older one")
        case {"action": "assign-uuid", "uuid": text} if text.lower() == view_uuid(now):
            pass
        case {"action": "upgrade-format-version", "format-version": int(number)} if number == FORMAT:
            pass
        case _:
            raise refused(f"an update of a view of the kind {one['action']} is not supported")


def _unreadable(error: Exception) -> InputError:
    return InputError("ICEBERG_REQUEST", f"the request is not as the specification has it: {error!r}")
