"""Reads a store in a bucket beside the process that writes to it: it writes nothing there, and fences nobody.

It sees the tables as of its opening, and nothing of what is in the log alone. What it reads is in the cache then, where
a `SlateStore` that gets the same cache finds it: a part of a table never changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from slatedb import uniffi as slatedb

from metaservice.store.engines.slate import CACHE_ID, SlateCursor, open_bucket
from metaservice.store.engines.slate_binding import run
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import StoreFailed

T = TypeVar("T")

_OPTIONS: Final = slatedb.ReaderOptions(
    manifest_poll_interval_ms=600_000,  # a reader lives for seconds
    checkpoint_lifetime_ms=1_200_000,  # it makes none; the library wants it longer than two polls
    max_memtable_bytes=64 << 20,
    skip_wal_replay=True,
    object_store_max_retries=2,
)


class SlateReader:
    """Raises StoreFailed where the store can't be opened or read, and once it is closed."""

    reads_at_once = 4

    def __init__(self, place: ObjectPlace, cache: slatedb.DbCache, bucket: slatedb.ObjectStore | None = None) -> None:
        self._is_closed = False
        builder = slatedb.DbReaderBuilder(place.path, bucket if bucket is not None else open_bucket(place))
        builder.with_options(_OPTIONS)
        builder.with_reader_mode(slatedb.ReaderMode.FOLLOW_LATEST())
        builder.with_db_cache(cache, CACHE_ID)
        self._reader: Any = self.ask(builder.build)

    def cursor(self) -> SlateCursor:
        return SlateCursor(self, self._reader)

    def ask(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self.refuse_if_failed()
        try:
            return run(call())
        except slatedb.Error as error:
            raise StoreFailed(str(error)) from error

    def refuse_if_failed(self) -> None:
        if self._is_closed:
            raise StoreFailed("the reader is closed")

    def stop(self) -> None:
        """From now on every call fails, also those of another thread's scan that is under way. Any thread may call."""
        self._is_closed = True

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(slatedb.Error):
            run(self._reader.shutdown())
