"""What went wrong, and what to do, as a page for people."""

from __future__ import annotations

from metaservice.cli.failures import failure_of
from metaservice.client import (
    ConflictError,
    DeniedError,
    ExhaustedError,
    GoneError,
    InvalidError,
    LakeTXError,
    NotFoundError,
    UnavailableError,
)
from worker.base.errors import InputError
from worker.console.guard import FormError
from worker.console.visits import PageError
from worker.web.callers import CallerRefusedError


def problem_of(error: Exception, place: str) -> PageError:
    match error:
        case PageError():
            return error
        case FormError():
            return PageError(403, f"Refused: {error}", "Nothing was changed. Go back, load the page again, try again.")
        case CallerRefusedError():
            return PageError(401, str(error), "Log in again.")
        case ConflictError():
            return PageError(409, str(error), "Nothing was changed. Load the page again.")
        case LakeTXError():
            failure = failure_of(error, place)
            step = failure.next_step or "Try again."
            return PageError(status_of(error), f"{failure.reason}: {failure.message}", step)
        case _:
            return PageError(500, "The console failed", "Its log says more. Other pages may work.")


def status_of(error: LakeTXError) -> int:
    match error:
        case DeniedError():
            return 403
        case NotFoundError():
            return 404
        case GoneError():
            return 410
        case UnavailableError():
            return 503
        case InputError() | InvalidError():
            return 400
        case ExhaustedError():
            return 429
        case _:
            return 409
