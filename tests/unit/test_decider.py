"""The decider's end: whoever asks late is answered too."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.service.decider.decider import Answer, ContinueNextGroup, Decider, Stamped
from metaservice.service.decider.state import State
from metaservice.store.engines.memory import MemoryStore


def fail(error: BaseException) -> None:
    raise error


def test_a_job_that_comes_after_the_end_is_refused_at_once() -> None:
    decider = Decider(lambda: State(MemoryStore()), lambda: None, fail)
    decider.start()
    assert decider.call(lambda: 1) == 1
    decider.stop()
    with pytest.raises(MetaError) as caught:
        decider.call(lambda: 2)
    assert (caught.value.kind, caught.value.reason) == (ErrorKind.UNAVAILABLE, "STOPPING")


def test_every_job_put_before_the_end_is_answered() -> None:
    decider = Decider(lambda: State(MemoryStore()), lambda: None, fail)
    answers: list[Answer] = []

    def sink(given: Sequence[Answer]) -> None:
        answers.extend(given)

    decider.submit([(sink, number, partial(int, number)) for number in range(100)])
    decider.start()
    decider.stop()
    assert answers == [(number, number) for number in range(100)]


@pytest.mark.parametrize("goes_on_itself", [True, False])
def test_a_job_of_several_turns_has_its_times(goes_on_itself: bool) -> None:
    decider = Decider(lambda: State(MemoryStore()), lambda: None, fail)
    turns: list[int] = []
    jobs: list[Stamped] = []

    def run() -> int:
        turns.append(len(turns))
        if len(turns) < 3:
            raise ContinueNextGroup(None if goes_on_itself else run)
        return 7

    def stamp(job: Callable[[], object]) -> Stamped:
        jobs.append(Stamped(job, decider.note_decided))
        return jobs[-1]

    decider.stamp = stamp
    decider.start()
    assert decider.call(run) == 7
    with pytest.raises(MetaError):
        decider.call(partial(fail, MetaError(ErrorKind.STALE, "TRANSACTION_ENDED")))
    decider.stop()
    assert [job.turns for job in jobs] == [3, 1]
    for job in jobs:
        times = [job.requested_ns, job.begun_ns, job.decided_ns, job.sync_ns, job.synced_ns]
        assert times == sorted(times)
        assert job.jobs == 1
    assert decider.stamped == []
