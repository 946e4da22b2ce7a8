"""Errors in the form of the REST catalog's specification."""

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
    """Return the answer to an error. `missing` is its type if the object of the request is not found."""
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
                name = next((error.facts[fact] for fact in ("name", "namespace", "view") if fact in error.facts), "")
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


def taken(thing: str, name: str, missing: str, more: str = "") -> RestError:
    """Return the answer for a name that a `thing` has already. `missing` is the error type of the new object's kind."""
    is_other = {thing, THINGS.get(missing)} == {*THINGS.values()}
    return RestError(
        409, "AlreadyExistsException", f"{thing}{' with same name' * is_other} already exists: {name}{more}"
    )


def cannot_rename(error: MetaServiceError, source: str, target: str, missing: str) -> RestError:
    """Return the answer to a failed rename."""
    thing = TAKEN.get(error.reason)
    if thing is None:
        return problem_of(error, missing)
    message = f"Cannot rename {source} to {target}. {thing} already exists ({error})"
    return RestError(409, "AlreadyExistsException", message)
