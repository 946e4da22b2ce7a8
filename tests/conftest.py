"""Settings of every test."""

import pytest
from hypothesis import settings

from worker.base.java import prepare_java

LONG_TIMEOUT_S = 3600  # of a test marked `long`

prepare_java()  # for the programs that tests start, too
settings.register_profile("laketx", deadline=None)  # a busy machine is no failure
settings.load_profile("laketx")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
