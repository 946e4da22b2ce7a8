"""The decider's end: whoever asks late is answered too."""

from collections.abc import Sequence
from functools import partial

import pytest

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.service.decider.decider import Answer, Decider
from metaservice.service.decider.state import State
from metaservice.store.memory import MemoryStore


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
