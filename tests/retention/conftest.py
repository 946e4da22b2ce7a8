"""Every test of retention runs on both stores; on the one of object storage in `make test-long`."""

import pytest

from metaservice.store.engines.memory import MemoryStore
from tests.retention.rig import Rig
from tests.simulation.slate_memory import SlateMemory


@pytest.fixture(autouse=True, params=[MemoryStore, pytest.param(SlateMemory, marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rig, "make_store", request.param)
