"""Which refusals justify repeating the call, how soon, and for how long.

A call is repeated with the same ids, so the service returns its first answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from metaservice.client.errors import CommitOutcomeUnknownError, ErrorKind, MetaServiceError, UnauthenticatedError

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off with full jitter, so that callers that failed together don't return together."""

    base_s: float
    longest_s: float

    def delay_s(self, attempt: int, chance: float) -> float:
        """The delay before repeat number `attempt`, counted from 0; `chance` is in [0, 1)."""
        return chance * min(self.longest_s, self.base_s * 2.0 ** min(attempt, 30))


BACKOFFS: Final[Mapping[ErrorKind, Backoff]] = {
    ErrorKind.UNAVAILABLE: Backoff(base_s=0.05, longest_s=2.0),
    ErrorKind.EXHAUSTED: Backoff(base_s=0.5, longest_s=10.0),
}
NOT_REPEATED: Final = frozenset({"TOO_MANY_INLINED_ROWS"})  # the writer puts its rows into files instead
# After an attempt without an answer these still don't tell what became of it.
SAYS_NOTHING: Final = frozenset(
    {ErrorKind.UNAVAILABLE, ErrorKind.EXHAUSTED, ErrorKind.DENIED, ErrorKind.CORRUPT},
)


def _sleep_and_revive(sleep: Callable[[float], None], revive: Callable[[], None], delay_s: float) -> None:
    sleep(delay_s)
    revive()


class Renews(Protocol):
    """The tokens of calls, as the repeats of calls see them."""

    def metadata(self) -> object: ...
    def renew(self, refused_at_s: float) -> None: ...


class Retries:
    """Repeats a call within a time budget, measured from its first failure."""

    def __init__(
        self,
        budget_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic_s: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        revive: Callable[[], None] | None = None,
        contact: Callable[[], None] = lambda: None,
        tokens: Renews | None = None,
    ) -> None:
        """Makes retries.

        `revive` is called after each pause, `contact` before each call: it can report at once that no service answers.
        A call that is refused for its token is repeated once, with the one that its source has then.
        """
        self._contact = contact
        self._tokens = tokens
        self._budget_s = budget_s
        self._sleep = sleep if revive is None else partial(_sleep_and_revive, sleep, revive)
        self._monotonic_s = monotonic_s
        self._chance = chance

    def run(self, attempt: Callable[[], Answer], *, decides: Sequence[str] = ()) -> Answer:
        """Runs a call. `decides`: ids of transactions that the call may have committed if no answer comes."""
        self._contact()
        began_s = self._begin()
        try:
            return attempt()
        except MetaServiceError as error:
            is_repeated = error.kind in BACKOFFS and error.reason not in NOT_REPEATED
            if not is_repeated and not isinstance(error, UnauthenticatedError):
                raise
            return self._repeat(attempt, decides, error, began_s)

    def once(self, attempt: Callable[[], Answer]) -> Answer:
        """Runs a call that is repeated only with another token."""
        began_s = self._begin()
        try:
            return attempt()
        except UnauthenticatedError:
            if self._tokens is None:
                raise
            self._tokens.renew(began_s)
            return attempt()

    def _begin(self) -> float:
        """When a call begins, which has its token by then."""
        if self._tokens is None:
            return 0.0
        self._tokens.metadata()
        return self._monotonic_s()

    def _repeat(
        self, attempt: Callable[[], Answer], decides: Sequence[str], last: MetaServiceError, began_s: float
    ) -> Answer:
        deadline_s = self._monotonic_s() + self._budget_s
        unanswered = False
        tokens = self._tokens  # until they were renewed
        number = 0
        while True:
            unanswered = unanswered or last.kind is ErrorKind.UNAVAILABLE
            refused = tokens if isinstance(last, UnauthenticatedError) else None
            if refused is not None:
                tokens = None
            elif last.reason not in NOT_REPEATED and (backoff := BACKOFFS.get(last.kind)) is not None:
                delay_s = backoff.delay_s(number, self._chance())
                if self._monotonic_s() + delay_s >= deadline_s:
                    break
                self._sleep(delay_s)
                number += 1
                began_s = self._monotonic_s()
            else:
                break
            try:
                if refused is not None:
                    refused.renew(began_s)
                return attempt()
            except MetaServiceError as error:
                last = error
        if decides and unanswered and last.kind in SAYS_NOTHING:
            raise CommitOutcomeUnknownError(*decides) from last
        raise last

    def patience(self) -> Patience:
        """The same budget, for a stream that is reopened repeatedly."""
        self._contact()
        return Patience(self._budget_s, self._sleep, self._monotonic_s, self._chance, self._tokens)


class Patience:
    """Counts consecutive failures; the budget is measured from the first of them."""

    def __init__(
        self,
        budget_s: float,
        sleep: Callable[[float], None],
        monotonic_s: Callable[[], float],
        chance: Callable[[], float],
        tokens: Renews | None = None,
    ) -> None:
        self._tokens = tokens
        self._is_renewed = False
        self._budget_s = budget_s
        self._sleep = sleep
        self._monotonic_s = monotonic_s
        self._chance = chance
        self._failures = 0
        self._deadline_s = 0.0

    def rewarded(self) -> None:
        """Resets the count after an answer."""
        self._failures = 0
        self._is_renewed = False

    def pause(self, error: MetaServiceError) -> None:
        """Pauses before the next attempt; raises the error if there should be none."""
        if isinstance(error, UnauthenticatedError) and self._tokens is not None and not self._is_renewed:
            self._is_renewed = True
            self._tokens.renew(self._monotonic_s())
            return
        backoff = BACKOFFS.get(error.kind)
        if self._failures == 0:
            self._deadline_s = self._monotonic_s() + self._budget_s
        if backoff is None or self._monotonic_s() >= self._deadline_s:
            raise error
        self._sleep(backoff.delay_s(self._failures, self._chance()))
        self._failures += 1
