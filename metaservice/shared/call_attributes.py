"""What a call is about: its tables, its transaction, and the name of anything else that it names.

Only ids and names are taken from a request, never a value, a condition or a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

CHARS_MAX: Final = 256  # of a name
TABLES_MAX: Final = 64


class Subject(NamedTuple):
    """What a call is about."""

    tables: tuple[str, ...] = ()  # ids
    txn_id: str = ""
    name: str = ""  # of a table, a namespace, a view, a tag, a cursor; the id of a pin or a task
    principal: str = ""  # the user whom the request names


NOTHING: Final = Subject()
_NAMES: Final = ("name", "pin_id", "task_id", "namespace", "path", "location", "settled_txn_id")
_READERS: dict[type, Callable[[Any], Subject]] = {}


def subject_of(request: Any) -> Subject:
    kind = type(request)
    reader = _READERS.get(kind)
    if reader is None:
        reader = _READERS[kind] = _reader(kind)
    return reader(request)


def _reader(kind: type) -> Callable[[Any], Subject]:
    descriptor: Any = getattr(kind, "DESCRIPTOR", None)
    if descriptor is None:
        return lambda _: NOTHING
    fields = {field.name for field in descriptor.fields}
    if "grant" in fields:
        return lambda request: _granted(request.grant)
    if "grantee" in fields:
        return _granted
    if "principal" in fields and descriptor.fields_by_name["principal"].message_type is None:
        return lambda request: Subject(name=request.principal[:CHARS_MAX])  # of a token, not of who asks
    many = next((each for each in ("tables", "changes", "appends") if each in fields), "")
    named = next((each for each in _NAMES if each in fields), "")
    inner = next((each for each in ("table", "view") if each in fields), "")

    def read(request: Any) -> Subject:
        if "more" in fields:
            tables: tuple[str, ...] = _ids(part for part in (request, *request.more) if part.table_id)
        elif "table_id" in fields:
            tables = (request.table_id,) if request.table_id else ()
        else:
            tables = _ids(getattr(request, many)) if many else ()
        txn_id = request.txn_id if "txn_id" in fields else ""
        name = getattr(request, named) if named else getattr(request, inner).name if inner else ""
        principal = request.principal.name if "principal" in fields else ""
        return Subject(tables, txn_id[:CHARS_MAX], name[:CHARS_MAX], principal[:CHARS_MAX])

    return read


def _granted(grant: Any) -> Subject:
    """Whose role, and where."""
    tables = (grant.place.table_id,) if grant.place.table_id else ()
    name = f"{grant.grantee} {grant.place.namespace}".strip()
    return Subject(tables, name=name[:CHARS_MAX])


def _ids(parts: Iterable[Any]) -> tuple[str, ...]:
    ids: dict[str, None] = {}
    for part in parts:
        if len(ids) == TABLES_MAX:
            break
        ids[part.table_id] = None
    return tuple(ids)
