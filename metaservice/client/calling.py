"""A call and its parts: its deadline, its repeats, its errors, the pages of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.message import Message

from metaservice.client.credentials import Address, Credentials, channel_credentials
from metaservice.client.errors import decode_rpc_error
from metaservice.client.features import not_offered
from metaservice.client.leader_channel import LeaderChannel
from metaservice.client.retries import Retries
from metaservice.client.tracing import Metadata, traced
from protos.laketx.v1 import common_pb2

if TYPE_CHECKING:
    from metaservice.client.tokens import Tokens

PAGE_SIZE: Final = 500
PRINCIPAL: Final = "x-laketx-principal"
NO_HIDDEN_RETRIES: Final = ("grpc.enable_retries", 0)
Request = TypeVar("Request")
Response = TypeVar("Response")
PART_BYTES: Final = 3 << 20  # of the items: the answer about them takes 4 MiB, and one item 2 at most
FRAME_BYTES: Final = 8  # of an item's tag and length
Item = TypeVar("Item", bound=Message | str)


def open_channel(address: Address, credentials: Credentials, options: Sequence[tuple[str, int]] = ()) -> grpc.Channel:
    """A channel, of several addresses to the one that leads.

    It reports every failure: `Retries` repeats calls, with pauses and within a budget. gRPC's own retries have neither.
    A server that ends can send GOAWAY together with its first frame; gRPC 1.85 repeats the call on that connection for
    as long as it lasts, and takes up to a gigabyte of memory a second.
    """
    given = [NO_HIDDEN_RETRIES, *options]
    shown = channel_credentials(credentials) if address.has_tls else None

    def open_one(target: str) -> grpc.Channel:
        if shown is None:
            return grpc.insecure_channel(target, options=given)
        return grpc.secure_channel(target, shown, options=given)

    targets = address.targets
    return open_one(address.target) if len(targets) == 1 else LeaderChannel(targets, open_one)


def principal_metadata(principal: str) -> Metadata:
    """The metadata that names the principal, whose quotas the call counts for."""
    return ((PRINCIPAL, quote(principal)),) if principal else ()


class Asks(Protocol):
    """A request for a page."""

    page_token: str


class Page(Protocol):
    """A page and the token of the next one."""

    @property
    def next_page_token(self) -> str: ...


A = TypeVar("A", bound=Asks)
P = TypeVar("P", bound=Page)


class Caller:
    """The common part of all services' calls. Lists are read page by page as they are used."""

    _timeout_s: float
    _retries: Retries
    _principal: common_pb2.Principal
    _named: Metadata
    _tokens: Tokens | None
    _ask_features: Callable[[], Iterable[str]]
    _offered: frozenset[str] | None = None  # None: not asked yet, or of a session before

    @property
    def _metadata(self) -> Metadata:
        """Of a call that begins now: who calls, and the token that shows it."""
        return self._named if self._tokens is None else self._tokens.metadata()

    def offers(self, feature: str) -> bool:
        """Whether the service has a feature that earlier releases lack; asked once for each session."""
        offered = self._offered
        if offered is None:
            offered = self._offered = frozenset(self._ask_features())
        return feature in offered

    def _need(self, feature: str) -> None:
        """Refuses a call of which an older service would leave something out."""
        if not self.offers(feature):
            raise not_offered(feature)

    def _call(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        decides: Sequence[str] = (),
    ) -> Response:
        def attempt(metadata: Metadata) -> Response:
            try:
                return method(request, timeout=self._timeout_s, metadata=metadata)
            except grpc.RpcError as error:
                raise decode_rpc_error(error) from error

        return self._retries.run(lambda: traced(request, self._metadata, attempt), decides=decides)

    def _stream(self, method: grpc.UnaryStreamMultiCallable[Request, Response], request: Request) -> Iterator[Response]:
        """Repeats the call only until its first part has arrived: later parts would come twice."""

        def attempt(metadata: Metadata) -> tuple[Iterator[Response], Response | None]:
            try:
                parts = iter(method(request, metadata=metadata))
                return parts, next(parts, None)
            except grpc.RpcError as error:
                raise decode_rpc_error(error) from error

        parts, first = self._retries.run(lambda: traced(request, self._metadata, attempt))
        if first is None:
            return
        yield first
        try:
            yield from parts
        except grpc.RpcError as error:
            raise decode_rpc_error(error) from error

    def _pages(self, method: grpc.UnaryUnaryMultiCallable[A, P], request: A) -> Iterator[P]:
        """The pages of a list, each requested when it is needed."""
        while True:
            page = self._call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def size_of(items: Sequence[Message | str]) -> int:
    return sum(len(item.encode()) if isinstance(item, str) else item.ByteSize() for item in items)


def in_parts(items: Sequence[Item], most: int) -> Iterator[list[Item]]:
    """All items, in their order."""
    part: list[Item] = []
    left = PART_BYTES
    for item in items:
        size = size_of([item]) + FRAME_BYTES
        if part and (len(part) == most or size > left):
            yield part
            part, left = [], PART_BYTES
        part.append(item)
        left -= size
    if part:
        yield part
