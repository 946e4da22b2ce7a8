"""A filled lake with a console for its owner, and a service with tokens with a console for people with rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.play import new_uuid7
from tests.console.browser import Browser, browser, find_chromium
from tests.console.lake import Filled, fill
from tests.console.visitor import Console, Visitor, console
from tests.integration.callers import Guarded, append, create, guarded


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests: it takes seconds to start."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("Chromium is not installed; Debian: apt-get install chromium")
    with browser(chromium, tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@dataclass(frozen=True)
class Owned:
    """A folder with its lake, its console, and its owner."""

    folder: Path
    filled: Filled
    console: Console
    owner: Visitor


@dataclass(frozen=True)
class Shared:
    """A service that asks for tokens, its console, and two tables of which the reader may read the first."""

    service: Guarded
    console: Console
    seen: str
    hidden: str
    hidden_name: str
    reader: Visitor
    reader_token: str


@pytest.fixture(scope="session")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    with opened(tmp_path_factory.mktemp("console") / "lake") as found:
        yield found


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    """One that tests only look at: others run before them in any order."""
    with opened(tmp_path_factory.mktemp("untouched") / "lake") as found:
        yield found


@contextmanager
def opened(folder: Path) -> Iterator[Owned]:
    filled = fill(folder)
    with console("--folder", str(folder), environment={"LAKETX_USER": "ana"}) as served:
        owner = served.visitor()
        owner.open(served.address)
        yield Owned(folder, filled, served, owner)
        owner.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with guarded(tmp_path_factory.mktemp("shared") / "data") as service:
        for namespace in ("shop", "vault"):
            service.owner.call("CatalogService/CreateNamespace", name=namespace, request_id=new_uuid7())
        seen, hidden = create(service.owner, "shop.open"), create(service.owner, "vault.salaries")
        for table_id in (seen, seen, hidden, hidden):
            append(service.owner, table_id)
        service.grant("user:rea", "reader", table_id=seen)
        service.grant("user:boss", "admin")
        token, own = service.token("rea"), service.token("boss")
        with console("--server", service.service.address, environment={"LAKETX_TOKEN": own}) as served:
            reader = served.visitor()
            reader.log_in(token)
            yield Shared(service, served, seen, hidden, "salaries", reader, token)
            reader.close()
