"""What went wrong, in the form of the REST catalog's specification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from metaservice.client import ConflictError, ErrorKind, LakeTXError, MetaServiceError, UnauthenticatedError
from worker.base.errors import InputError
from worker.web.callers import CallerRefusedError

NO_TABLE: Final = "NoSuchTableException"
NO_NAMESPACE: Final = "NoSuchNamespaceException"
NO_VIEW: Final = "NoSuchViewException"
NO_WAREHOUSE: Final = "NoSuchWarehouseException"
NO_PLAN: Final = "NoSuchPlanIdException"
NO_TASK: Final = "NoSuchPlanTaskException"
KINDS: Final[Mapping[ErrorKind, tuple[int, str]]] = {
    ErrorKind.INVALID: (400, "BadRequestException"),
    ErrorKind.NOT_FOUND: (404, NO_TABLE),
    ErrorKind.ALREADY_EXISTS: (409, "AlreadyExistsException"),
    ErrorKind.BLOCKED: (400, "BadRequestException"),
    ErrorKind.GONE: (503, "ServiceUnavailableException"),  # the table is there: its newest version ended meanwhile
    ErrorKind.STALE: (409, "CommitFailedException"),
    ErrorKind.EXHAUSTED: (503, "SlowDownException"),
    ErrorKind.DENIED: (403, "ForbiddenException"),
    ErrorKind.UNAVAILABLE: (503, "ServiceUnavailableException"),
    ErrorKind.CORRUPT: (500, "InternalServerError"),
}
THINGS: Final = {NO_TABLE: "Table", NO_VIEW: "View"}  # in the words of Iceberg's Java
TAKEN: Final = {"TABLE_EXISTS": "Table", "NAMESPACE_EXISTS": "Namespace", "VIEW_EXISTS": "View"}


@dataclass(eq=False)
class RestError(Exception):
    """An answer that is an error."""

    status: int
    kind: str
    message: str

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "code": self.status}}


def problem_of(error: Exception, missing: str = NO_TABLE) -> RestError:
    """`missing` is the word for what can't be found: it says what the request is about."""
    match error:
        case RestError():
            return error
        case UnauthenticatedError() | CallerRefusedError():
            return RestError(401, "NotAuthorizedException", str(error))
        case ConflictError():
            return RestError(409, "CommitFailedException", str(error))
        case MetaServiceError(kind=kind):
            status, word = KINDS[kind]
            if error.reason in TAKEN:
                name = next((error.facts[one] for one in ("name", "namespace", "view") if one in error.facts), "")
                return taken(TAKEN[error.reason], name, missing, f" ({error})")
            if status == 404:
                word = NO_NAMESPACE if error.reason.startswith("NAMESPACE") else missing
            return RestError(status, word, str(error))
        case InputError():
            return RestError(400, "BadRequestException", str(error))
        case LakeTXError():
            return RestError(503, "ServiceUnavailableException", str(error))
        case _:
            return RestError(500, "InternalServerError", f"{type(error).__name__}: the server's log says more")


def taken(thing: str, name: str, wanted: str, more: str = "") -> RestError:
    """A name is that of a `thing` already. `wanted` is what the name was to be for, by the word for its absence."""
    is_other = {thing, THINGS.get(wanted)} == {*THINGS.values()}
    return RestError(
        409, "AlreadyExistsException", f"{thing}{' with same name' * is_other} already exists: {name}{more}"
    )


def cannot_rename(error: MetaServiceError, source: str, target: str, missing: str) -> RestError:
    """What a renaming ended with."""
    thing = TAKEN.get(error.reason)
    if thing is None:
        return problem_of(error, missing)
    said = f"Cannot rename {source} to {target}. {thing} already exists ({error})"
    return RestError(409, "AlreadyExistsException", said)
