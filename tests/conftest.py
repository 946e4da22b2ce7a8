"""Settings of every test."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.java import BRIEF, java_options
from worker.spark import session
from worker.spark.java import prepare_java

LONG_TIMEOUT_S = 3600  # of a test marked `long`
# Tests of a minute each: at the end they would keep one worker busy when the others have nothing left.
FIRST = ("test_drivers.py", "test_demo.py", "test_connect.py", "test_backup_repository.py")
WITH_SPARK = ("spark", "races")  # folders of tests whose process has a session

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # tests start Python by the thousand: each would compile all anew
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())  # of every session here and in processes of tests
os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF)  # of the Java that finds out how to start Spark's
prepare_java()  # for the programs that tests start, too
settings.register_profile("laketx", deadline=None)  # a busy machine is no failure
settings.load_profile("laketx")


@pytest.fixture(scope="module", autouse=True)
def sees_no_spark_of_others(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests run in any order, and one before may have left a session of Spark, which would then do the writes."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in WITH_SPARK:
            patch.setattr(session, "has_active", lambda: False)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
    items.sort(key=lambda item: item.path.name not in FIRST)
