"""Rates, the log of refusals, and what the state counts."""

import json
import logging

import pytest

from metaservice.core import quotas
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.quotas import Quota
from metaservice.rpc.observe import refusal_log
from metaservice.rpc.observe.refusal_log import RefusalLog
from metaservice.rpc.pipeline.rate_limits import Rates
from metaservice.service.decider.usage import QuotaUse, QuotaUses, Usage

SLOW = 1  # a second: none comes while a test runs


def refused(rates: Rates, principal: str, count: int = 1) -> dict[str, str]:
    with pytest.raises(MetaError) as caught:
        rates.take(principal, count)
    assert (caught.value.kind, caught.value.reason) == (ErrorKind.EXHAUSTED, "TOO_MANY_REQUESTS")
    return caught.value.facts


def test_a_principal_that_asks_too_much_leaves_requests_for_others() -> None:
    rates = Rates(Quota(1_000, SLOW))
    rates.take("etl", 500)  # a frame may overdraw
    assert refused(rates, "etl") == {"quota": "requests", "most": "1", "principal": "etl"}
    rates.take("bi")


def test_all_together_have_a_rate() -> None:
    rates = Rates(Quota(SLOW, 1_000))
    rates.take("etl", 500)
    assert refused(rates, "bi") == {"quota": "requests", "most": "1"}


@pytest.mark.parametrize(("most", "each", "principal"), [(2, 9, None), (9, 2, "etl")])
def test_a_refusal_says_whose_quota_is_used_up(most: int, each: int, principal: str | None) -> None:
    usage, limits = Usage(), {quotas.PINS: Quota(most, each)}
    for _ in range(2):
        usage.check(limits, quotas.PINS, "etl")
        usage.pin("etl")
    with pytest.raises(MetaError) as caught:
        usage.check(limits, quotas.PINS, "etl")
    assert (caught.value.reason, caught.value.facts.get("principal")) == ("TOO_MANY_PINS", principal)
    usage.pin("etl", -1)
    usage.check(limits, quotas.PINS, "etl")
    assert usage.use(quotas.PINS) == (1, {"etl": 1})
    usage.pin("etl", -1)
    assert usage.each == {}, "who has nothing takes no memory"


def test_what_a_transaction_has_staged_is_counted_and_given_back() -> None:
    usage = Usage()
    usage.begin("etl")
    usage.begin("bi")
    usage.stage("etl", 2, 1_000)
    usage.stage("bi", 1, 500)
    assert usage.use(quotas.STAGED_BYTES) == (1_500, {"etl": 1_000, "bi": 500})
    usage.stage("etl", -2, -1_000)
    assert usage.use(quotas.TRANSACTIONS) == (2, {"etl": 1, "bi": 1})
    usage.end("etl")
    usage.stage("bi", -1, -500)
    usage.end("bi")
    assert (usage.each, usage.use(quotas.STAGED_FILES)) == ({}, (0, {}))


def test_a_storm_of_refusals_is_a_few_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    said = RefusalLog()
    storm, other = MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_PINS"), MetaError(ErrorKind.INVALID, "TIME_INVALID")
    with caplog.at_level(logging.INFO, "laketx.rpc"):
        for _ in range(1_000):
            said.say(storm, "/m", "id", "etl")
        said.say(storm, "/m", "id", "bi")
        said.say(other, "/m", "id", "etl")
        assert len(caplog.records) == refusal_log.LINES_PER_WINDOW + 2
        monkeypatch.setattr(refusal_log, "WINDOW_S", 0.0)
        said.say(storm, "/m", "id", "etl")
    last = json.loads(caplog.records[-1].getMessage())
    assert (last["reason"], last["principal"]) == ("TOO_MANY_PINS", "etl")
    assert int(last["suppressed"]) == 1_000 - refusal_log.LINES_PER_WINDOW


class Clock:
    """Seconds that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_requests_are_shown_as_those_of_the_last_whole_second() -> None:
    clock = Clock()
    rates = Rates(Quota(1_000, 1_000), clock)
    rates.take("etl", 5)
    rates.take("bi", 2)
    assert rates.use() == (0, {})
    clock.now_s += 1
    assert rates.use() == (7, {"etl": 5, "bi": 2})
    rates.take("etl")
    assert rates.use() == (7, {"etl": 5, "bi": 2})
    clock.now_s += 1
    assert rates.use() == (1, {"etl": 1})
    clock.now_s += 1
    assert rates.use() == (0, {})
    rates.take("etl", 3)
    clock.now_s += 5
    rates.take("etl", 4)
    assert rates.use() == (0, {})


def test_of_each_quota_the_one_that_uses_most_is_named() -> None:
    uses = QuotaUses()
    uses.add(
        {quotas.PINS: Quota(10, 8), quotas.SESSIONS: Quota(4, 3)},
        {quotas.PINS: lambda: (5, {"etl": 2, "bi": 3}), quotas.SESSIONS: lambda: (0, {})},
    )
    assert uses.list() == [
        QuotaUse(quotas.SESSIONS, 0, 4, "", 0, 3),
        QuotaUse(quotas.PINS, 5, 10, "bi", 3, 8),
    ]
