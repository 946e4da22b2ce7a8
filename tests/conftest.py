"""Settings of every test."""

import gc
import importlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.outcomes import Skipped
from hypothesis import settings

from metaservice.client import folder_service
from tests.forked_programs import start_folder_server
from tests.java import BRIEF, java_options
from worker.spark import session
from worker.spark.java import prepare_java

ROOT = Path(__file__).resolve().parents[1]
LONG_TIMEOUT_S = 3600  # of a test marked `long`
# Tests of a minute each: at the end they would keep one worker busy when the others have nothing left. Other tests with
# Spark follow: one worker begins with them, and others, who start a session for it, take from their end at last.
FIRST = ("test_drivers.py", "test_demo.py", "test_connect.py", "test_backup_repository.py")
WITH_SPARK = ("spark", "races")  # folders of tests whose process has a session
STARTED = "test_embedded.py"

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


@pytest.fixture(scope="module", autouse=True)
def forks_servers_of_folders(request: pytest.FixtureRequest) -> Iterator[None]:
    """Python would import the service anew for each lake that a test opens; STARTED tests that start."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name != STARTED:
            patch.setattr(folder_service, "start_server", start_folder_server)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """A collection makes a million objects that stay: looking for garbage among them would take a third of its time."""
    if session.config.pluginmanager.hasplugin("dsession"):
        return  # its workers collect
    gc.disable()
    worker: dict[str, str | int] | None = getattr(session.config, "workerinput", None)
    if worker is not None and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        import_share(int(str(worker["workerid"]).removeprefix("gw")), int(worker["workercount"]))


def pytest_collection_finish() -> None:
    """What is collected stays out of later looks for garbage, and those come less often than in a small program."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def import_share(number: int, many: int) -> None:
    """Each of many workers imports other modules first: pytest rewrites their asserts once, and not once in each."""
    for path in sorted((ROOT / "tests").rglob("test_*.py"))[number::many]:
        with suppress(Exception, Skipped):  # what is wrong is told when it is collected
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
    items.sort(key=lambda item: (item.path.name not in FIRST, item.path.parent.name not in WITH_SPARK))
