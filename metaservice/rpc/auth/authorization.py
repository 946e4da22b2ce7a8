"""The gate: every call is somebody's, and has the right to be made. Without identities it lets everything through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from metaservice.core.access import Grant, Identity, Place, Policy, Role
from metaservice.core.errors import MetaError
from metaservice.rpc.auth import rights
from metaservice.rpc.auth.authentication import Identities, Metadata
from metaservice.rpc.auth.caller import Caller
from metaservice.rpc.auth.rights import OPEN_TO_ALL, RIGHTS
from metaservice.rpc.handlers import Call
from metaservice.service.decider.decider import Decider
from metaservice.service.operate.access import Access
from protos.laketx.v1 import common_pb2

ANYBODY: Final = Identity("", role=Role.ADMIN)
HINT: Final = "did_you_mean"
PARTS: Final = {  # the fields of calls that carry several requests
    "/laketx.v1.TransactionService/CommitBatch": "appends",
    "/laketx.v1.CatalogService/CreateBranches": "branches",
    "/laketx.v1.CatalogService/DropBranches": "branches",
}


class Authorizer:
    """Knows callers and checks their rights."""

    def __init__(
        self, identities: Identities | None, decider: Decider, access: Access, policy: Policy | None = None
    ) -> None:
        """`policy` decides roles instead of the grants."""
        self._identities = identities
        self._policy = policy
        self._decider = decider
        self._access = access

    @property
    def is_open(self) -> bool:
        """Nobody has to say who they are, and everybody may do everything."""
        return self._identities is None

    @property
    def has_policy(self) -> bool:
        """Whether somebody else decides roles, so that grants say nothing."""
        return self._policy is not None

    def caller(self, who: Identity) -> Caller:
        state = self._decider.state
        return Caller(who, self._policy or state.access.grants, state)

    def peek(self, metadata: Metadata) -> str | None:
        """The principal for quotas; None: not known yet."""
        return None if self._identities is None else self._identities.peek(metadata)

    def identify(self, method: str, context: grpc.ServicerContext) -> Identity:
        if self._identities is None or method in OPEN_TO_ALL:
            return ANYBODY
        return self._identities.of_call(context, dict(context.invocation_metadata() or ()))

    def still(self, who: Identity) -> None:
        """Refuses what has expired since: for streams."""
        if self._identities is not None and who is not ANYBODY:
            self._identities.still(who)

    def check(self, who: Identity, method: str, request: Any) -> None:
        """Refuses a request that its caller may not make, and puts the caller's name into it."""
        if who is ANYBODY:
            return
        rights.check(self.caller(who), method, request)
        if method in PARTS:
            for part in getattr(request, PARTS[method]):
                sign(part, who)
        elif isinstance(request, Message):
            sign(request, who)

    def check_again(self, who: Identity, method: str, request: Any) -> None:
        """Refuses a stream of answers that its caller may no longer read. A dropped table is reported elsewhere."""
        self.still(who)
        table_ids = [getattr(request, "table_id", ""), *(part.table_id for part in getattr(request, "more", ()))]
        find = self._decider.state.views.find
        if all(find(table_id) is not None for table_id in table_ids if table_id):
            self.check(who, method, request)

    def checked(self, who: Identity, method: str, requests: Iterable[Any]) -> Iterator[Any]:
        """Each part of a stream of requests."""
        for request in requests:
            self.still(who)
            self.check(who, method, request)
            yield request

    def answered(self, who: Identity, method: str, answer: Any) -> Any:
        """The answer as the caller may see it."""
        if who is ANYBODY:
            return answer
        shown = RIGHTS[method].shown
        if shown is not None:
            shown(self.caller(who), answer)
        return answer

    def without_hints(self, who: Identity | None, error: MetaError) -> MetaError:
        """Return the refusal without hints that name what the caller may not see."""
        if who is ANYBODY or HINT not in error.facts:
            return error
        if who is not None and self.caller(who).on_service() >= Role.READER:
            return error
        facts = {name: value for name, value in error.facts.items() if name != HINT}
        return MetaError(error.kind, error.reason, **facts)

    def reads(self, context: grpc.ServicerContext) -> Callable[[str, str], bool] | None:
        """Whether whoever makes this call may read a table or a view, by its name and id; None: everybody may."""
        caller = self._limited(context)
        return None if caller is None else lambda name, table_id: caller.on_named(name, table_id) >= Role.READER

    def reads_tables(self, context: grpc.ServicerContext) -> Callable[[str], bool] | None:
        """The same of a table by its id; a table of a branch has the readers of the parent's."""
        caller = self._limited(context)
        return None if caller is None else caller.reads

    def sees_namespaces(self, context: grpc.ServicerContext) -> Callable[[str], bool] | None:
        """Whether whoever makes this call may know of a namespace; None: everybody may."""
        caller = self._limited(context)
        return None if caller is None else caller.sees_namespace

    def _limited(self, context: grpc.ServicerContext) -> Caller | None:
        who = self.identify("", context)
        return None if who is ANYBODY else self.caller(who)

    def maker(self, context: grpc.ServicerContext) -> Maker:
        """Who makes something in this call."""
        return Maker(self, self.identify("", context), self._access)


class Maker:
    """Whoever makes a table or a namespace is its admin: from the moment when it is made, and by that alone. The first
    answer, given again, grants nothing. On the decider's thread.
    """

    def __init__(self, gate: Authorizer, who: Identity, access: Access) -> None:
        self._gate = gate
        self._who = who
        self._access = access

    def owning(self, namespace: str) -> Callable[[Place], object]:
        """What grants it, once something in this namespace is made; refuses what could not be granted then."""
        is_admin = self._gate.caller(self._who).on_namespace(namespace) >= Role.ADMIN
        if self._who is ANYBODY or self._gate.has_policy or is_admin:
            return _nothing
        self._access.check_new_grant()
        return self._own

    def _own(self, place: Place) -> None:
        self._access.grant(Grant(place, self._who.grantees[0], Role.ADMIN, self._who.principal))


def _nothing(_: Place) -> None:
    """There is nothing to grant."""


class CallContext:
    """One call on its way in: who makes it, and with what right."""

    __slots__ = ("declared", "gate", "method", "request_id", "who")

    def __init__(self, gate: Authorizer, method: str, request_id: str, declared: str) -> None:
        self.gate = gate
        self.method = method
        self.request_id = request_id
        self.declared = declared  # the name that the client gives
        self.who: Identity | None = None

    @property
    def proven(self) -> str:
        """The principal; empty where nobody has to prove who he is."""
        return self.who.principal if self.who is not None else ""

    def enter(self, context: grpc.ServicerContext) -> None:
        """Raises MetaError for a caller that proves nothing."""
        self.who = self.gate.identify(self.method, context)

    def guarded(self, call: Call, *, asks_often: bool, tells_often: bool) -> Call:
        """The same method for those who may call it. It is entered before."""
        if self.gate.is_open:
            return call
        return self._sent(call) if tells_often else self._received(call) if asks_often else self._single(call)

    def _single(self, call: Call) -> Call:
        def guarded(request: Any, context: grpc.ServicerContext) -> Any:
            who = self._entered()
            self.gate.check(who, self.method, request)
            return self.gate.answered(who, self.method, call(request, context))

        return guarded

    def _received(self, call: Call) -> Call:
        def guarded(requests: Any, context: grpc.ServicerContext) -> Any:
            return call(self.gate.checked(self._entered(), self.method, requests), context)

        return guarded

    def _sent(self, call: Call) -> Call:
        def guarded(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            who = self._entered()
            self.gate.check(who, self.method, request)
            for answer in call(request, context):
                self.gate.check_again(who, self.method, request)
                yield answer

        return guarded

    def _entered(self) -> Identity:
        assert self.who is not None, "a call enters before it is made"
        return self.who


def sign(request: Message, who: Identity) -> None:
    """Puts the caller's name where the request says who sends it; a name that was declared stays beside it."""
    for field in _signed(request):
        given: common_pb2.Principal = getattr(request, field)
        if given.name and given.name != who.principal:
            given.client = f"{given.client} as {given.name}".strip()[:256]
        given.name = who.principal


_FIELDS: Final[dict[str, tuple[str, ...]]] = {}


def _signed(request: Message) -> tuple[str, ...]:
    """Return the fields of a message that name its sender."""
    kind = request.DESCRIPTOR.full_name
    names = _FIELDS.get(kind)
    if names is None:
        principal = common_pb2.Principal.DESCRIPTOR
        fields = [field.name for field in request.DESCRIPTOR.fields if field.message_type is principal]
        names = _FIELDS[kind] = tuple(fields)
    return names
