"""Checks and copies of stores that no service runs on, and how they are opened."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.lease import LOOK_MS, TAKE_MS, VALID_MS
from metaservice.server.ha.standby import lead_store
from metaservice.server.settings import log_endpoint
from metaservice.server.store_opening import open_in_bucket
from metaservice.service.operate.check import StoreCheck
from metaservice.shared.terminal import printable
from metaservice.store.engines.copying import AFTER_ALL, FIRST_KEY, copy_entries, copy_to_folder
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.object_location import LogPlace, ObjectPlace
from metaservice.store.port import STORE_UNREACHABLE, Store, StoreUnusable

EXIT_REFUSED = 1
UNANSWERED_MAX = 3  # looks at the lease, one after the other


def run_check(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="laketx check", description="Checks a data folder that no service runs on.")
    parser.add_argument("--data", required=True, help="the data folder, or s3://bucket/path")
    parsed = parser.parse_args(arguments)
    with _opened_alone(parsed.data) as store:
        problems, last = 0, None
        for last in StoreCheck(store.cursor(), _no_pause).run():
            problems += len(last.problems)
            sys.stdout.writelines(f"{printable(str(problem))}\n" for problem in last.problems)
    assert last is not None
    sys.stdout.write(f"checked {last.tables} tables, {last.entries} entries: {problems} problems\n")
    return EXIT_REFUSED if problems else 0


def run_copy(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="laketx store copy", description="Copies a store to another place.")
    parser.add_argument("source", help="a data folder, or s3://bucket/path")
    parser.add_argument("target", help="a place where there is no store yet")
    add_store_log(parser)
    parsed = parser.parse_args(arguments)
    copied = copy_store(parsed.source, parsed.target, parsed.store_log)
    sys.stdout.write(f"copied {copied} entries from {parsed.source} to {parsed.target}\n")
    return 0


def add_store_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store-log", default="", help="bucket of the new store's log, s3://bucket; the store's own by default"
    )


def copy_store(source: str, target: str, store_log: str = "") -> int:
    """Copies a store that no service runs on, as it is: the history goes on there. Returns the number of entries.

    `store_log`: the bucket where the copy gets its log, if that is another one than the copy's.
    """
    log = _log_place(target, store_log)
    with _opened_alone(source) as store:
        place = ObjectPlace.of(target)
        if place is None:
            refuse_used_folder(Path(target))
            return copy_to_folder(store.cursor(), Path(target))
        with _leading(place):
            copy = open_in_bucket(place, log)
            try:
                if next(copy.cursor().scan(FIRST_KEY, AFTER_ALL), None) is not None:
                    raise MetaError(ErrorKind.ALREADY_EXISTS, "DATA_EXISTS", "a store is there already", path=target)
                return copy_entries(store.cursor(), copy)
            finally:
                copy.close()


def refuse_used_folder(data: Path) -> None:
    if str(data).startswith("s3:"):
        raise MetaError(ErrorKind.INVALID, "STORE_PLACE_INVALID", path=data)
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise MetaError(ErrorKind.ALREADY_EXISTS, "DATA_EXISTS", "the target folder exists: name a new one", path=data)
    if data.exists():
        data.rmdir()
    if not data.resolve().parent.is_dir():
        raise MetaError(ErrorKind.NOT_FOUND, "FOLDER_MISSING", path=data.resolve().parent)


def _log_place(where: str, store_log: str) -> LogPlace:
    if not store_log:
        return LogPlace(endpoint=log_endpoint())
    log = LogPlace.of(store_log, log_endpoint())
    if log is None or ObjectPlace.of(where) is None:
        raise MetaError(ErrorKind.INVALID, "STORE_PLACE_INVALID", path=where, log=store_log)
    return log


@contextmanager
def _opened_alone(where: str) -> Iterator[Store]:
    """A store that is there, and that no service runs on: a folder has a lock, a bucket a lease."""
    place = ObjectPlace.of(where)
    if place is None:
        if not (Path(where) / "CURRENT").exists():
            raise MetaError(ErrorKind.NOT_FOUND, "STORE_MISSING", path=where)
        with opened(Path(where)) as store:
            yield store
        return
    with _leading(place):
        store = open_in_bucket(place, _log_place(where, ""))
        try:
            yield store
        finally:
            store.close()


@contextmanager
def _leading(place: ObjectPlace) -> Iterator[None]:
    """Leads, so that no service does; waits for a lease to run out, and refuses one that is renewed.

    Raises StoreUnusable where the bucket can't be used.
    """
    leads = lead_store(place)
    leads.address = "an offline command"
    until_s, unanswered = time.monotonic() + (TAKE_MS + VALID_MS) / 1000, 0
    while not leads.try_take():
        unanswered = unanswered + 1 if leads.unanswered else 0
        if unanswered == UNANSWERED_MAX:
            raise StoreUnusable(STORE_UNREACHABLE, path=str(place), found=leads.unanswered)
        if time.monotonic() > until_s and not unanswered:
            raise MetaError(ErrorKind.BLOCKED, "STORE_IN_USE", path=place, leader=leads.leader)
        time.sleep(LOOK_MS / 1000)
    leads.start()
    try:
        yield
    finally:
        leads.release()


def list_problems(store: Store) -> Iterator[str]:
    for progress in StoreCheck(store.cursor(), _no_pause).run():
        yield from progress.problems


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    store = RocksStore(path)
    try:
        yield store
    finally:
        store.close()


def _no_pause() -> None:
    """Nothing else uses the folder, so there is nothing to yield to."""
