"""Lists come in pages; who asks sees one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import grpc


class Asks(Protocol):
    """A request for a page."""

    page_token: str


class Page(Protocol):
    """A page and where the next one begins."""

    @property
    def next_page_token(self) -> str: ...


A = TypeVar("A", bound=Asks)
P = TypeVar("P", bound=Page)


def pages(call: Callable[..., P], method: grpc.UnaryUnaryMultiCallable[A, P], request: A) -> Iterator[P]:
    """The pages of a list, each asked for when it is wanted."""
    while True:
        page = call(method, request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
