"""Settings of every test."""

import pytest
from hypothesis import settings

LONG_TIMEOUT_S = 3600  # of a test marked `long`

settings.register_profile("laketx", deadline=None)  # a busy machine is no failure
settings.load_profile("laketx")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
