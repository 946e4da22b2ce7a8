"""AccessService: identities, grants and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from metaservice.core import access, limits
from metaservice.core.access import NAME, USER, Identity, Place, Role, Token, grantee_of, places_of
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.storage_scope import folder_of
from metaservice.rpc.auth.authorization import Authorizer
from metaservice.rpc.auth.caller import namespace_of
from metaservice.rpc.convert import wire
from metaservice.rpc.convert.paging import fitting, page_size, page_start, page_token
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer, UseCases
from metaservice.service.operate.access import digest_of, secret_text
from protos.laketx.v1 import access_pb2 as pb
from protos.laketx.v1 import access_pb2_grpc

if TYPE_CHECKING:
    from metaservice.rpc.auth.storage_tokens import StorageTokens  # its library is optional

NewSecret = Callable[[], tuple[str, str]]  # the id of a token, and its secret
VALID_MS_MAX: Final = 10 * 365 * 24 * 3_600_000


class AccessServicer(Servicer, access_pb2_grpc.AccessServiceServicer):
    """Who calls, who may do what, and the tokens of services."""

    def __init__(
        self,
        calls: UseCases,
        gate: Authorizer,
        new_secret: NewSecret,
        storage_tokens: StorageTokens | None = None,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        """`ring` makes open streams look whether they may go on."""
        super().__init__(calls)
        self._gate = gate
        self._new_secret = new_secret
        self._storage_tokens = storage_tokens
        self._ring = ring

    def _who(self, context: Context) -> Identity:
        return self._gate.identify("", context)

    def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:
        who = self._who(context)
        return pb.WhoAmIResponse(
            principal=who.principal,
            groups=sorted(who.groups),
            how=who.how,
            expire_time_us=who.expires_us,
            role=_role_message(self._gate.caller(who).on_service()),
            identity_required=not self._gate.is_open,
        )

    def Can(self, request: pb.CanRequest, context: Context) -> pb.CanResponse:
        who, needed = self._who(context), _role(request.role)
        place = self._place(request.place)
        namespace = self._namespace_of(place)
        if self._gate.has_policy:
            return self._by_policy(request.grantee, who, needed, place)
        grants = self._calls.decider.state.access.grants
        grantees = (_grantee(request.grantee),) if request.grantee else who.grantees
        best = grants.best(grantees, places_of(namespace, place.table_id))
        actual = max(best.role if best is not None else Role.NONE, Role.NONE if request.grantee else who.role)
        return pb.CanResponse(allowed=actual >= needed, grant=self._message(best) if best is not None else None)

    def _by_policy(self, grantee: str, who: Identity, needed: Role, place: Place) -> pb.CanResponse:
        if grantee and not _grantee(grantee).startswith(USER):
            raise MetaError(ErrorKind.BLOCKED, "POLICY_DECIDES")
        identity = Identity(_grantee(grantee).removeprefix(USER)) if grantee else who
        actual = self._gate.caller(identity).on_named_place(place)
        return pb.CanResponse(allowed=actual >= needed)

    def Grant(self, request: pb.GrantRequest, context: Context) -> pb.GrantResponse:
        if self._gate.has_policy:
            raise MetaError(ErrorKind.BLOCKED, "POLICY_DECIDES")
        given = request.grant
        place, who = self._place(given.place), self._who(context)
        grant = access.Grant(place, _grantee(given.grantee), _role(given.role), who.principal)
        made = self._ask(lambda: self._calls.access.grant(grant))
        return pb.GrantResponse(grant=self._message(made))

    def Revoke(self, request: pb.RevokeRequest, context: Context) -> pb.RevokeResponse:
        place, grantee = self._place(request.place), _grantee(request.grantee)
        revoked = self._ask(lambda: self._calls.access.revoke(place, grantee))
        self._ring()
        return pb.RevokeResponse(revoked=revoked)

    def ListGrants(self, request: pb.ListGrantsRequest, context: Context) -> pb.ListGrantsResponse:
        size, after = page_size(request.page_size), page_start(request.page_token)
        grants = self._calls.decider.state.access.grants
        listed = grants.at(self._place(request.place)) if request.HasField("place") else grants.all()
        if request.grantee:
            grantee = _grantee(request.grantee)
            listed = [grant for grant in listed if grant.grantee == grantee]
        rest = sorted((grant for grant in listed if _order(grant) > after), key=_order)[:size]
        shown = list(fitting(map(self._message, rest)))
        is_last = len(rest) < size and len(shown) == len(rest)
        return pb.ListGrantsResponse(
            grants=shown, next_page_token=page_token("" if is_last else _order(rest[len(shown) - 1]))
        )

    def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        if not NAME.match(request.principal):
            raise invalid("PRINCIPAL_INVALID", principal=request.principal[:256])
        groups = tuple(dict.fromkeys(request.groups))
        if len(groups) > limits.TOKEN_GROUPS_MAX or not all(map(NAME.match, groups)):
            raise invalid("GROUPS_INVALID", most=limits.TOKEN_GROUPS_MAX)
        if not 0 <= request.valid_ms <= VALID_MS_MAX:
            raise invalid("VALIDITY_INVALID", most_ms=VALID_MS_MAX)
        who = self._who(context)
        token_id, secret = self._new_secret()
        token = Token(token_id, digest_of(secret), request.principal, groups, who.principal)
        made = self._ask(lambda: self._calls.access.create_token(token, request.valid_ms))
        return pb.CreateTokenResponse(token=_token_message(made), secret=secret_text(token_id, secret))

    def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        size, after = page_size(request.page_size), page_start(request.page_token)
        tokens = sorted(self._calls.decider.state.access.tokens.values(), key=lambda token: token.token_id)
        rest = [token for token in tokens if token.token_id > after][:size]
        is_last = len(rest) < size
        return pb.ListTokensResponse(
            tokens=map(_token_message, rest), next_page_token=page_token("" if is_last else rest[-1].token_id)
        )

    def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        revoked = self._ask(lambda: self._calls.access.revoke_token(request.token_id))
        self._ring()
        return pb.RevokeTokenResponse(revoked=revoked)

    def GetStorageCredentials(
        self, request: pb.GetStorageCredentialsRequest, context: Context
    ) -> pb.GetStorageCredentialsResponse:
        if self._storage_tokens is None:
            raise invalid("STORAGE_TOKENS_OFF")
        table_id = wire.table_id(request.table_id)
        if request.new_table:
            wire.txn_id(table_id)  # it has a time
            self._ask(lambda: self._calls.catalog.check_new_id(table_id))
        else:
            table_id = self._calls.decider.state.get_table(table_id).view().folder_id or table_id
        warehouse = self._ask(self._calls.warehouses.location)
        folder = folder_of(warehouse, table_id)
        if folder is None:
            raise MetaError(ErrorKind.BLOCKED, "STORAGE_WITHOUT_TOKENS", warehouse=warehouse)
        made = self._storage_tokens.credentials(self._who(context).principal, folder, write=request.write)
        return pb.GetStorageCredentialsResponse(
            location=folder.uri,
            access_key_id=made.access_key_id,
            secret_access_key=made.secret_access_key,
            session_token=made.session_token,
            expire_time_us=made.expires_us,
            endpoint=self._storage_tokens.settings.endpoint,
            region=self._storage_tokens.settings.region,
        )

    def _place(self, message: pb.Place) -> Place:
        if message.table_id and message.namespace:
            raise invalid("GRANT_PLACE_INVALID")
        if message.table_id:
            return Place(table_id=wire.table_id(message.table_id))
        return Place(namespace=message.namespace)

    def _namespace_of(self, place: Place) -> str:
        table = self._calls.decider.state.views.find(place.table_id) if place.table_id else None
        return place.namespace if table is None else namespace_of(table.meta.name)

    def _message(self, grant: access.Grant) -> pb.Grant:
        table = self._calls.decider.state.views.find(grant.place.table_id) if grant.place.table_id else None
        return pb.Grant(
            place=pb.Place(namespace=grant.place.namespace, table_id=grant.place.table_id),
            grantee=grant.grantee,
            role=_role_message(grant.role),
            granted_by=grant.by,
            create_time_us=grant.create_us,
            table_name=table.meta.name if table is not None else "",
        )


def no_secret() -> tuple[str, str]:
    raise invalid("TOKENS_OFF")


def _order(grant: access.Grant) -> str:
    return f"{grant.place.key} {grant.grantee}"


def _role(message: pb.Role.ValueType) -> Role:
    if message not in pb.Role.values() or not message:
        raise invalid("ROLE_INVALID")
    return Role(message)


def _role_message(role: Role) -> pb.Role.ValueType:
    return pb.Role.ValueType(role.value)


def _grantee(text: str) -> str:
    grantee = grantee_of(text)
    if grantee is None:
        raise invalid("GRANTEE_INVALID", grantee=text[:256])
    return grantee


def _token_message(token: Token) -> pb.Token:
    return pb.Token(
        token_id=token.token_id,
        principal=token.principal,
        groups=token.groups,
        created_by=token.by,
        create_time_us=token.create_us,
        expire_time_us=token.expires_us,
    )
