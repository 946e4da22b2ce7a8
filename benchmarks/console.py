"""How fast the console is over 100,000 versions and 100,000 tables, and what it needs. `make bench-console`.

The store is loaded by the service's own code in this process, many commits to a group; then a service and a console run
on it, each in a process of its own. A page's time is from the request to the last byte of the answer, over one
connection. Chromium's first contentful paint is measured too, if Chromium is installed.
"""

from __future__ import annotations

import http.client
import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.plan_tables import Loader, data_file, loader
from benchmarks.serving import PEAK, Served, memory, server
from benchmarks.words import chosen
from metaservice.client import MetaClient, uuid7
from tests.console.browser import browser, find_chromium
from tests.console.visitor import Console, Visitor, console

VERSIONS = 100_000
TABLES = 100_000
WATCHERS = 50
COMMITS_A_GROUP = 1_000
COMPACTIONS_EVERY = 100  # of the commits, one is a table service's
DAYS = 2_000
RUNS = 7
ROUNDS = 8
FIRST_MS, NEXT_MS, SEARCH_MS, MEMORY_MIB = 500.0, 100.0, 100.0, 256.0
SEARCHES = {"one in a thousand names": "77_", "a name that is not there": "nothing", "a part of all names": "orders"}


def load(folder: Path) -> tuple[str, int]:
    """A table of so many versions, and so many tables; the id of the first, and its newest version."""
    versions, tables = scaled(VERSIONS, COMMITS_A_GROUP), scaled(TABLES) - 1
    with loader(folder) as loaded:
        table_id, newest = load_versions(loaded, versions)
        for number in range(tables):
            loaded.create(f"orders_{number % 1_000}_{number}")
    return table_id, newest


def load_versions(loaded: Loader, versions: int) -> tuple[str, int]:
    table_id = loaded.create("history")
    for start in range(0, versions, COMMITS_A_GROUP):
        services = COMMITS_A_GROUP // COMPACTIONS_EVERY
        days = [random.Random(number).randrange(DAYS) for number in range(start, start + COMMITS_A_GROUP - services)]
        loaded.append(table_id, [[data_file(day, start + at)] for at, day in enumerate(days)])
        loaded.replace(table_id, services)
    return table_id, versions


def timed(visitor: Visitor, path: str, *, whole: bool = True) -> float:
    """Milliseconds until the page is there, with its figures or without those that take longer."""
    began_s = time.perf_counter()
    visitor.page(path) if whole else visitor.get(path).raise_for_status()
    return 1_000 * (time.perf_counter() - began_s)


def add_pages(bench: Benchmark, visitor: Visitor, table_id: str, newest: int) -> None:
    of_table = f"/tables/{table_id}"
    first_s = timed(visitor, f"{of_table}/timeline")
    bench.add(f"timeline of {newest:,} versions, the console's first page", [first_s], unit="ms", at_most=FIRST_MS)
    first = [timed(visitor, f"{of_table}/timeline") for _ in range(RUNS)]
    bench.add(f"timeline of {newest:,} versions, first page", first, unit="ms", at_most=FIRST_MS)
    befores = [newest * at // (RUNS + 1) for at in range(RUNS, 0, -1)]
    following = [timed(visitor, f"{of_table}/timeline?before={before}") for before in befores]
    bench.add("timeline, next page", following, unit="ms", at_most=NEXT_MS)
    for page in ("", "/files"):
        name = "files" if page else "overview"
        answer_ms = timed(visitor, of_table + page, whole=False)
        bench.add(f"{name} of {newest:,} files, first answer", [answer_ms], unit="ms", at_most=FIRST_MS)
        bench.add(
            f"{name} of {newest:,} files, until they are counted",
            [answer_ms + timed(visitor, of_table + page)],
            unit="ms",
        )
        later = [timed(visitor, of_table + page) for _ in range(RUNS)]
        bench.add(f"{name} of {newest:,} files, from then on", later, unit="ms", at_most=NEXT_MS)
    home = [timed(visitor, "/") for _ in range(RUNS)]
    bench.add("home", home, unit="ms", at_most=FIRST_MS)


def add_searches(bench: Benchmark, visitor: Visitor) -> None:
    tables = scaled(TABLES)
    for name, sought in SEARCHES.items():
        took = [timed(visitor, f"/tables?q={sought}") for _ in range(RUNS)]
        bench.add(f"search over {tables:,} tables: {name}", took, unit="ms", at_most=SEARCH_MS)


def add_paint(bench: Benchmark, served: Console, visitor: Visitor, table_id: str, folder: Path) -> None:
    chromium = find_chromium()
    if chromium is None:
        print("Chromium is not installed: its first paint is not measured", file=sys.stderr)
        return
    with browser(chromium, folder / "profile") as page:
        name, value = visitor.session_cookie
        page.call("Network.setCookie", name=name, value=value, url=served.url, httpOnly=True, sameSite="Strict")
        paints = []
        for _ in range(RUNS):
            page.open(f"{served.url}/tables/{table_id}/timeline")
            page.wait("performance.getEntriesByName('first-contentful-paint').length")
            paints.append(page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        bench.add("timeline in Chromium, first contentful paint", paints, unit="ms", at_most=FIRST_MS)


@contextmanager
def listening(served: Console, visitor: Visitor, path: str) -> Iterator[http.client.HTTPResponse]:
    """A page that listens for events."""
    name, value = visitor.session_cookie
    connection = http.client.HTTPConnection(served.host, timeout=60)
    connection.request("GET", path, headers={"Cookie": f"{name}={value}"})
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def add_memory(bench: Benchmark, served: Console, visitor: Visitor, service: Served, table_id: str) -> None:
    """Pages of tables and of the service that listen, while commits come and each page is loaded again and again."""
    process = Served(served.url, served.process.pid)
    with ExitStack() as pages, MetaClient(service.address, principal="bench") as client:
        table_ids = [table.table_id for table, _ in zip(client.list_tables(), range(WATCHERS - 1), strict=False)]
        paths = [f"/live/tables/{each}" for each in (table_id, *table_ids[: WATCHERS - 1])]
        streams = [pages.enter_context(listening(served, visitor, path)) for path in paths[:WATCHERS]]
        for stream in streams:
            assert stream.status == 200
        for number in range(ROUNDS):
            for each in (table_id, *table_ids):
                txn_id = uuid7()
                file = data_file(1, number)
                file.path = f"{txn_id}/0.parquet"
                client.append(each, [file], txn_id=txn_id)
            for path in (f"/tables/{table_id}/timeline", f"/tables/{table_id}", "/", "/races", "/tables?q=orders"):
                visitor.page(path)
        bench.add(f"memory of the console's process under {WATCHERS} watchers", [memory(process)], unit="MiB")
        bench.add("the same, at its peak", [memory(process, PEAK)], unit="MiB", at_most=MEMORY_MIB)


def main() -> int:
    chosen(__doc__)
    bench = Benchmark("console", "The console", packages=["starlette", "uvicorn", "jinja2"])
    with scratch() as folder:
        began_s = time.perf_counter()
        table_id, newest = load(folder / "data")
        print(f"loaded in {time.perf_counter() - began_s:.0f} s", file=sys.stderr)
        with server(folder / "data", "--schedule-ms", "0") as service, console("--server", service.address) as served:
            visitor = served.visitor()
            visitor.open(served.address)
            add_pages(bench, visitor, table_id, newest)
            add_searches(bench, visitor)
            add_paint(bench, served, visitor, table_id, folder)
            add_memory(bench, served, visitor, service, table_id)
            visitor.close()
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
