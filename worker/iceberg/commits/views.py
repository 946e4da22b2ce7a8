"""Views that Iceberg's clients create and replace, as views of MetaService: queries of Spark SQL."""

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
    """Return the view of a createView request. `no_namespace` is the name for tables without a namespace."""
    try:
        if body.get("location"):
            raise refused("a view has no place of its own: leave out the location")
        return _view(name, body["schema"], body["view-version"], body.get("properties") or {}, no_namespace)
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unreadable(error) from error


def replaced_view(now: catalog_pb2.View, body: Json, no_namespace: str) -> catalog_pb2.View:
    """Return the view after a replaceView request.

    A client doesn't send a version or schema that the view has already.
    """
    try:
        for requirement in body.get("requirements") or ():
            _check_requirement(now, requirement)
        updates: Sequence[Json] = body.get("updates") or ()
        versions = [update["view-version"] for update in updates if update["action"] == "add-view-version"]
        schemas = [update["schema"] for update in updates if update["action"] == "add-schema"]
        version = versions[-1] if versions else shown_version(now, no_namespace)
        properties = _kept(now)
        for update in updates:
            _check_update(now, update, version)
            if update["action"] == "set-properties":
                properties |= update["updates"]
            elif update["action"] == "remove-properties":
                properties = {name: text for name, text in properties.items() if name not in update["removals"]}
        schema = schemas[-1] if schemas else view_schema(now)
        if version["schema-id"] not in (LAST, schema["schema-id"]):
            raise refused(f"the version has the schema {version['schema-id']}, which the view doesn't have")
        view = _view(now.name, schema, version, properties, no_namespace)
        if not versions:
            view.text = now.text
        return view
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unreadable(error) from error


def _view(name: str, schema: Json, version: Json, properties: Mapping[str, str], no_namespace: str) -> catalog_pb2.View:
    kept = {key: str(value) for key, value in properties.items()}
    comment, names = kept.pop(COMMENT, ""), kept.pop(QUERY_COLUMNS, "")
    catalog, namespace = version.get("default-catalog") or "", list(version["default-namespace"])
    columns = [
        catalog_pb2.ViewColumn(name=column.name, type=column.type, nullable=column.nullable, comment=column.comment)
        for column in columns_of({"fields": schema["fields"]})
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
        dialects = ", ".join(sorted(str(representation["dialect"]) for representation in given))
        raise refused(f"a view has one query, of the dialect {DIALECT}; this one has {dialects or 'none'}")
    return str(given[0]["sql"])


def _kept(now: catalog_pb2.View) -> dict[str, str]:
    named = {COMMENT: now.comment, QUERY_COLUMNS: ",".join(now.query_columns)}
    return dict(now.properties) | {name: text for name, text in named.items() if text}


def _check_requirement(now: catalog_pb2.View, requirement: Json) -> None:
    if requirement["type"] != "assert-view-uuid":
        raise refused(f"a requirement of the kind {requirement['type']} is not supported")
    if requirement["uuid"].lower() != view_uuid(now):
        raise UnmetError(f"{now.name} is another view than the one that was loaded: load it again")


def _check_update(now: catalog_pb2.View, update: Json, version: Json) -> None:
    """Refuse an update that a replacement can't do."""
    match update:
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
            raise refused(f"an update of a view of the kind {update['action']} is not supported")


def _unreadable(error: Exception) -> InputError:
    return InputError("ICEBERG_REQUEST", f"the request is not as the specification has it: {error!r}")
