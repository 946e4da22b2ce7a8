"""The errors of calls, decoded from stable words, never from text.

LakeTXError
├── MetaServiceError                the service refused: kind, reason, facts
│   ├── InvalidError                fix the request
│   ├── NotFoundError               stop asking for it
│   ├── AlreadyExistsError          pick another name
│   ├── BlockedError                change something first
│   ├── GoneError                   ask for a newer version
│   ├── StaleError                  begin again
│   ├── ExhaustedError              slow down
│   ├── DeniedError                 get rights
│   │   └── UnauthenticatedError    show who calls
│   ├── UnavailableError            send the same again
│   └── CorruptError                call a human
├── ConflictError                   a lost race: the winner, the rule, the advice
└── CommitOutcomeUnknownError       no answer: ask again later with the same id
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import grpc

from metaservice.shared.error_kinds import ErrorKind as ErrorKind
from protos.laketx.v1 import common_pb2

if TYPE_CHECKING:
    from google.rpc import status_pb2

DOMAIN: Final = "laketx"


class LakeTXError(Exception):
    """Base class of the errors that a call to MetaService raises."""


class MetaServiceError(LakeTXError):
    """The service refused the call, or could not be reached (kind UNAVAILABLE)."""

    def __init__(self, kind: ErrorKind, reason: str, facts: Mapping[str, str], message: str) -> None:
        listed = ", ".join(f"{name}={value}" for name, value in sorted(facts.items()))
        super().__init__(f"{reason}{': ' if message else ''}{message}{f' ({listed})' if listed else ''}")
        self.kind = kind
        self.reason = reason
        self.facts = dict(facts)
        self.message = message


class InvalidError(MetaServiceError):
    """The request is invalid."""


class NotFoundError(MetaServiceError):
    """The named object does not exist."""


class AlreadyExistsError(MetaServiceError):
    """The name is taken."""


class BlockedError(MetaServiceError):
    """Something else must change first."""


class GoneError(MetaServiceError):
    """It existed and is no longer kept; the fact `oldest` says what is."""


class StaleError(MetaServiceError):
    """The transaction or lease has ended."""


class ExhaustedError(MetaServiceError):
    """A limit is reached."""


class DeniedError(MetaServiceError):
    """The caller has no right to do this."""


class UnauthenticatedError(DeniedError):
    """The service doesn't know who calls: the call has no token or certificate that it takes, or one that expired."""


class UnavailableError(MetaServiceError):
    """No answer, or no answer yet."""


class CorruptError(MetaServiceError):
    """The service can't trust its records."""


class ConflictError(LakeTXError):
    """The transaction lost a race; none of its changes is visible. From Spark the text names the winner and the advice.

    `conflict` has the facts as fields. `table` and `attempts` are set from Spark.
    """

    def __init__(self, conflict: common_pb2.Conflict, text: str = "", *, table: str = "", attempts: int = 1) -> None:
        super().__init__(text or conflict.message or common_pb2.ConflictRule.Name(conflict.rule))
        self.conflict = conflict
        self.table = table
        self.attempts = attempts


class CommitOutcomeUnknownError(LakeTXError):
    """No answer came within the budget: the commit may have succeeded.

    The same call with the same id returns the answer.
    """

    def __init__(self, *txn_ids: str) -> None:
        super().__init__(f"the outcome of {', '.join(txn_ids)} is not known; ask again with the same id")
        self.txn_ids = txn_ids
        self.txn_id = txn_ids[0]


CLASSES: Final[Mapping[ErrorKind, type[MetaServiceError]]] = {
    ErrorKind.INVALID: InvalidError,
    ErrorKind.NOT_FOUND: NotFoundError,
    ErrorKind.ALREADY_EXISTS: AlreadyExistsError,
    ErrorKind.BLOCKED: BlockedError,
    ErrorKind.GONE: GoneError,
    ErrorKind.STALE: StaleError,
    ErrorKind.EXHAUSTED: ExhaustedError,
    ErrorKind.DENIED: DeniedError,
    ErrorKind.UNAVAILABLE: UnavailableError,
    ErrorKind.CORRUPT: CorruptError,
}
assert CLASSES.keys() == set(ErrorKind)

# Codes that say nothing about the request count as UNAVAILABLE: whether it arrived is not known.
KIND_OF_CODE: Final[Mapping[int, ErrorKind]] = {
    code.value[0]: kind
    for code, kind in {
        grpc.StatusCode.INVALID_ARGUMENT: ErrorKind.INVALID,
        grpc.StatusCode.NOT_FOUND: ErrorKind.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS: ErrorKind.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION: ErrorKind.BLOCKED,
        grpc.StatusCode.UNIMPLEMENTED: ErrorKind.BLOCKED,
        grpc.StatusCode.OUT_OF_RANGE: ErrorKind.GONE,
        grpc.StatusCode.ABORTED: ErrorKind.STALE,
        grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorKind.EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED: ErrorKind.DENIED,
        grpc.StatusCode.UNAUTHENTICATED: ErrorKind.DENIED,
        grpc.StatusCode.DATA_LOSS: ErrorKind.CORRUPT,
    }.items()
}
UNAUTHENTICATED: Final[int] = grpc.StatusCode.UNAUTHENTICATED.value[0]
NAME_OF_CODE: Final[Mapping[int, str]] = {code.value[0]: code.name for code in grpc.StatusCode}


def build_error(
    kind: ErrorKind, reason: str, message: str = "", facts: Mapping[str, str] | None = None
) -> MetaServiceError:
    return CLASSES[kind](kind, reason, facts or {}, message)


def build_unauthenticated(reason: str, message: str, facts: Mapping[str, str] | None = None) -> UnauthenticatedError:
    return UnauthenticatedError(ErrorKind.DENIED, reason, facts or {}, message)


def decode_status(status: status_pb2.Status) -> MetaServiceError:
    """Decodes a status.

    Without LakeTX's details the error is the transport's: its reason is `RPC_` and the code's name.
    """
    kind = KIND_OF_CODE.get(status.code, ErrorKind.UNAVAILABLE)
    from google.rpc import error_details_pb2  # noqa: PLC0415 - slow, and only needed where a call fails

    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            facts = dict(info.metadata)
            named = facts.pop("kind", "")
            message = status.message.removeprefix(f"{info.reason}: ")
            if status.code == UNAUTHENTICATED:
                return build_unauthenticated(info.reason, message, facts)
            return build_error(ErrorKind.__members__.get(named, kind), info.reason, message, facts)
    if status.code == UNAUTHENTICATED:
        return build_unauthenticated("RPC_UNAUTHENTICATED", status.message)
    return build_error(kind, f"RPC_{NAME_OF_CODE.get(status.code, status.code)}", status.message)


def decode_rpc_error(error: grpc.RpcError) -> MetaServiceError:
    """The error that a call or a stream raised; gRPC's errors are calls, though their types don't say so."""
    call = cast(grpc.Call, error)
    if not callable(getattr(call, "code", None)):
        return build_error(ErrorKind.UNAVAILABLE, "RPC_UNKNOWN", str(error))
    from google.rpc import status_pb2  # noqa: PLC0415 - likewise
    from grpc_status import rpc_status  # noqa: PLC0415 - likewise

    try:
        status = rpc_status.from_call(call)
    except ValueError:  # the details contradict the code: the code stands
        status = None
    if status is None:
        status = status_pb2.Status(code=call.code().value[0], message=call.details() or "")
    return decode_status(status)
