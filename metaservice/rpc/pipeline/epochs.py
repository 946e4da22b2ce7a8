"""Refuses what clients hold of another history, in an interceptor, so that no method has to check it.

A page token has the epoch before its method's content: `2-9f31c0d47a55.ZXZlbnRz`. A client that holds versions, pins or
cursors names its history in the metadata of a call, `x-laketx-epoch`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from metaservice.core.commit.transaction import HISTORY_CHANGED
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.rpc.handlers import Call, Continuation, Handler, wrapping

EXPECTED_EPOCH = "x-laketx-epoch"
EPOCH_CHARS_MAX = 64
_SEALED = re.compile(r"(?P<epoch>\d{1,19}-[0-9a-f]{1,32})\.(?P<token>.+)\Z", re.DOTALL)


class Epochs(grpc.ServerInterceptor):
    """An interceptor inside the one that turns refusals into statuses."""

    def __init__(self, epoch: Callable[[], str]) -> None:
        self._epoch = epoch

    def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        handler = continuation(details)
        if handler is None or details.method.startswith("/grpc."):
            return handler
        expected = str(dict(details.invocation_metadata or ()).get(EXPECTED_EPOCH, ""))[:EPOCH_CHARS_MAX]
        if not (handler.request_streaming or handler.response_streaming):
            return wrapping(handler, lambda call: self._paged(call, expected))
        if not expected:
            return handler
        checked = self._streamed if handler.response_streaming else self._checked
        return wrapping(handler, lambda call: checked(call, expected))

    def _paged(self, call: Call, expected: str) -> Call:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Any:
            epoch = self._epoch()
            check_epoch(expected, epoch)
            token = getattr(request, "page_token", "")
            if token:
                request.page_token = open_token(token, epoch)
            answer = call(request, context)
            following = getattr(answer, "next_page_token", "")
            if following:
                answer.next_page_token = f"{epoch}.{following}"
            return answer

        return wrapped

    def _checked(self, call: Call, expected: str) -> Call:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Any:
            check_epoch(expected, self._epoch())
            return call(request, context)

        return wrapped

    def _streamed(self, call: Call, expected: str) -> Call:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            check_epoch(expected, self._epoch())
            yield from call(request, context)

        return wrapped


def check_epoch(expected: str, epoch: str) -> None:
    if expected not in ("", epoch):
        raise MetaError(
            ErrorKind.STALE,
            HISTORY_CHANGED,
            "the service has another history since a restore from a backup: begin again from the head",
            expected=expected,
            epoch=epoch,
        )


def open_token(token: str, epoch: str) -> str:
    """The method's content of a page token of this history."""
    sealed = _SEALED.match(token)
    if sealed is None:
        raise invalid("PAGE_TOKEN_INVALID")
    check_epoch(sealed["epoch"], epoch)
    return sealed["token"]
