"""SlateDB's binding, made fit: calls that block their thread, and bytes that are copied at once.

    db = run(builder.build())
    value = run(db.get(key))

The binding knows coroutines alone. Each waits for nothing but a callback from SlateDB's threads, so a lock does for an
event loop: a call costs a tenth of what it does through one. Its writer of buffers copies byte by byte, its reader
calls five functions for each number: `next_batch` of an iterator returns pairs of key and value here, without the rest.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

from slatedb.uniffi._slatedb_uniffi import slatedb as binding

T = TypeVar("T")
_SIZE: Final = struct.Struct(">i")
_TIMES_BYTES: Final = 16  # the number of the write, and when it was made
_EXPIRY_BYTES: Final = 8


def run(call: Coroutine[Any, Any, T]) -> T:
    """Waits for a call, on any thread; the GIL is free meanwhile."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("a call of SlateDB waits for something else than SlateDB")


class _Waiting:
    """What the binding takes for a future: who awaits it sleeps on a lock."""

    __slots__ = ("_code", "_done")

    def __init__(self) -> None:
        self._done = threading.Lock()
        self._done.acquire()
        self._code = 0

    def __await__(self) -> _Waiting:
        return self

    def __iter__(self) -> _Waiting:
        return self

    def __next__(self) -> None:
        self._done.acquire()
        raise StopIteration(self._code)

    def cancelled(self) -> bool:
        return False

    def set_result(self, code: int) -> None:
        self._code = code
        self._done.release()


class _NoLoop:
    """What the binding takes for an event loop."""

    def create_future(self) -> _Waiting:
        return _Waiting()

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: object) -> None:
        callback(*arguments)


def _write_at_once(buffer: Any, value: bytes) -> None:
    with buffer._reserve(len(value)):  # noqa: SLF001 - its method, which we replace
        start = ctypes.cast(buffer.rbuf.data, ctypes.c_void_p).value or 0
        ctypes.memmove(start + buffer.rbuf.len, value, len(value))


def _read_pairs(buffer: Any) -> list[tuple[bytes, bytes]]:
    raw: bytes = buffer.read(buffer.remaining())
    (count,), at = _SIZE.unpack_from(raw), _SIZE.size
    pairs = []
    for _ in range(count):
        start = at + _SIZE.size
        at = start + _SIZE.unpack_from(raw, at)[0]
        key, start = raw[start:at], at + _SIZE.size
        at = start + _SIZE.unpack_from(raw, at)[0]
        pairs.append((key, raw[start:at]))
        at += _TIMES_BYTES
        at += 1 + _EXPIRY_BYTES if raw[at] else 1
    if at != len(raw):
        raise binding.InternalError("a batch of rows of another form")
    return pairs


binding.uniffi_set_event_loop(_NoLoop())
binding._UniffiRustBufferBuilder.write = _write_at_once  # noqa: SLF001 - likewise
binding._UniffiFfiConverterSequenceTypeKeyValue.read = _read_pairs  # noqa: SLF001 - likewise
