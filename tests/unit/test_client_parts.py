"""The client's pure parts: ids, errors, retries."""

import uuid

import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from metaservice.client import (
    CommitOutcomeUnknownError,
    ErrorKind,
    GoneError,
    InvalidError,
    MetaServiceError,
    UnavailableError,
    uuid7,
)
from metaservice.client.errors import build_error, decode_status
from metaservice.client.meta_client import batch_outcome
from metaservice.client.retries import BACKOFFS, Backoff, Retries
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import transaction_pb2 as wire


def status(code: int, reason: str = "", domain: str = "laketx", **facts: str) -> status_pb2.Status:
    found = status_pb2.Status(code=code, message="a sentence")
    if reason:
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=facts))
        found.details.append(detail)
    return found


def test_uuid7_has_version_variant_and_time() -> None:
    made = uuid.UUID(uuid7(now_ms=1_700_000_000_123))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123


def test_uuid7_differ_and_sort_by_time() -> None:
    made = [uuid7(now_ms=at) for at in range(1_000)]
    assert made == sorted(made)
    assert len({uuid7(now_ms=7) for _ in range(1_000)}) == 1_000


def test_an_error_keeps_reason_and_facts() -> None:
    error = decode_status(status(11, "VERSION_RETIRED", kind="GONE", oldest="7"))
    assert isinstance(error, GoneError)
    assert (error.kind, error.reason, error.facts) == (ErrorKind.GONE, "VERSION_RETIRED", {"oldest": "7"})


@pytest.mark.parametrize(
    ("refusal", "kind", "reason"),
    [
        (status(9, "SOMETHING", kind="STALE"), ErrorKind.STALE, "SOMETHING"),  # the fact goes before the code
        (status(9, "SOMETHING", kind="NOT_A_KIND"), ErrorKind.BLOCKED, "SOMETHING"),
        (status(3, "SOMETHING"), ErrorKind.INVALID, "SOMETHING"),
        (status(3, "SOMETHING", domain="elsewhere"), ErrorKind.INVALID, "RPC_INVALID_ARGUMENT"),
        (status(8), ErrorKind.EXHAUSTED, "RPC_RESOURCE_EXHAUSTED"),
        (status(14), ErrorKind.UNAVAILABLE, "RPC_UNAVAILABLE"),
        (status(4), ErrorKind.UNAVAILABLE, "RPC_DEADLINE_EXCEEDED"),
        (status(2), ErrorKind.UNAVAILABLE, "RPC_UNKNOWN"),
        (status(99), ErrorKind.UNAVAILABLE, "RPC_99"),
    ],
)
def test_kinds_and_reasons(refusal: status_pb2.Status, kind: ErrorKind, reason: str) -> None:
    error = decode_status(refusal)
    assert (error.kind, error.reason) == (kind, reason)


def test_a_batch_item_is_one_of_three() -> None:
    assert isinstance(batch_outcome(wire.BatchItem(committed=common_pb2.Committed())), common_pb2.Committed)
    refused = batch_outcome(wire.BatchItem(error=status(3, "PATH_INVALID", kind="INVALID")))
    assert isinstance(refused, InvalidError)


def test_backoff_doubles_up_to_its_longest() -> None:
    backoff = Backoff(base_s=1.0, longest_s=5.0)
    assert [backoff.delay_s(attempt, 1.0) for attempt in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert backoff.delay_s(10_000, 0.5) == 2.5
    assert backoff.delay_s(3, 0.0) == 0.0


def test_exhausted_waits_longer_than_unavailable() -> None:
    assert BACKOFFS.keys() == {ErrorKind.EXHAUSTED, ErrorKind.UNAVAILABLE}
    assert BACKOFFS[ErrorKind.EXHAUSTED].base_s > BACKOFFS[ErrorKind.UNAVAILABLE].base_s


class Service:
    """Answers with the kinds listed, then with "done"; time passes only in sleep."""

    def __init__(self, *kinds: ErrorKind) -> None:
        self.kinds = list(kinds)
        self.calls = 0
        self.now_s = 0.0
        self.retries = Retries(10.0, sleep=self.sleep, monotonic_s=lambda: self.now_s, chance=lambda: 1.0)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def call(self) -> str:
        self.calls += 1
        if self.kinds:
            raise build_error(self.kinds.pop(0), "REASON")
        return "done"


def test_an_absent_service_is_asked_again() -> None:
    service = Service(ErrorKind.UNAVAILABLE, ErrorKind.EXHAUSTED, ErrorKind.UNAVAILABLE)
    assert service.retries.run(service.call) == "done"
    assert service.calls == 4


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind not in BACKOFFS])
def test_other_kinds_are_final(kind: ErrorKind) -> None:
    service = Service(kind)
    with pytest.raises(MetaServiceError) as raised:
        service.retries.run(service.call, decides=("t1",))
    assert (raised.value.kind, service.calls) == (kind, 1)


def test_the_budget_ends() -> None:
    service = Service(*[ErrorKind.UNAVAILABLE] * 1_000)
    with pytest.raises(UnavailableError):
        service.retries.run(service.call)
    assert service.now_s <= 10.0


@pytest.mark.parametrize(
    ("kinds", "outcome"),
    [
        ([ErrorKind.UNAVAILABLE] * 1_000, CommitOutcomeUnknownError),
        ([ErrorKind.UNAVAILABLE] + [ErrorKind.EXHAUSTED] * 1_000, CommitOutcomeUnknownError),
        ([ErrorKind.UNAVAILABLE, ErrorKind.DENIED], CommitOutcomeUnknownError),
        ([ErrorKind.EXHAUSTED] * 1_000, MetaServiceError),  # each refusal said that nothing was done
        ([ErrorKind.UNAVAILABLE, ErrorKind.STALE], MetaServiceError),  # the service answered
    ],
)
def test_an_unknown_outcome_never_looks_like_a_failure(kinds: list[ErrorKind], outcome: type[Exception]) -> None:
    service = Service(*kinds)
    with pytest.raises(outcome) as raised:
        service.retries.run(service.call, decides=("t1",))
    if isinstance(raised.value, CommitOutcomeUnknownError):
        assert raised.value.txn_id == "t1"
