"""Calls for identity, grants and service tokens, all part of `MetaClient`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metaservice.client.calling import PAGE_SIZE, Caller
from protos.laketx.v1 import access_pb2, access_pb2_grpc


class AccessCalls(Caller):
    """Who calls, who may do what. A place is a table, a namespace, or with neither the service."""

    _access: access_pb2_grpc.AccessServiceStub

    def whoami(self) -> access_pb2.WhoAmIResponse:
        """Returns who this client is to the service."""
        return self._call(self._access.WhoAmI, access_pb2.WhoAmIRequest())

    def can(
        self, role: access_pb2.Role.ValueType, *, namespace: str = "", table_id: str = "", grantee: str = ""
    ) -> access_pb2.CanResponse:
        """Whether the caller, or `grantee`, has a role there, and by which grant."""
        place = access_pb2.Place(namespace=namespace, table_id=table_id)
        return self._call(self._access.Can, access_pb2.CanRequest(grantee=grantee, role=role, place=place))

    def grant(
        self, grantee: str, role: access_pb2.Role.ValueType, *, namespace: str = "", table_id: str = ""
    ) -> access_pb2.Grant:
        """Gives `user:NAME` or `group:NAME` a role there, instead of the one that they had."""
        place = access_pb2.Place(namespace=namespace, table_id=table_id)
        grant = access_pb2.Grant(place=place, grantee=grantee, role=role)
        return self._call(self._access.Grant, access_pb2.GrantRequest(grant=grant)).grant

    def revoke(self, grantee: str, *, namespace: str = "", table_id: str = "") -> bool:
        """Takes the role there back; returns whether there was one."""
        place = access_pb2.Place(namespace=namespace, table_id=table_id)
        return self._call(self._access.Revoke, access_pb2.RevokeRequest(grantee=grantee, place=place)).revoked

    def list_grants(
        self, place: access_pb2.Place | None = None, *, grantee: str = "", page_size: int = PAGE_SIZE
    ) -> Iterator[access_pb2.Grant]:
        """The grants of a place, or all of them; by place and grantee."""
        request = access_pb2.ListGrantsRequest(place=place, grantee=grantee, page_size=page_size)
        for page in self._pages(self._access.ListGrants, request):
            yield from page.grants

    def create_token(
        self, principal: str, *, groups: Sequence[str] = (), valid_ms: int = 0
    ) -> access_pb2.CreateTokenResponse:
        """Makes a service token; its secret is in this answer only."""
        request = access_pb2.CreateTokenRequest(principal=principal, groups=groups, valid_ms=valid_ms)
        return self._call(self._access.CreateToken, request)

    def storage_credentials(
        self, table_id: str, *, write: bool = False, new_table: str = ""
    ) -> access_pb2.GetStorageCredentialsResponse:
        """A temporary key for the files of a table on S3, if the service gives such.

        `new_table`: the name of a table that the caller will make with the id, which is a new one.
        """
        request = access_pb2.GetStorageCredentialsRequest(table_id=table_id, write=write, new_table=new_table)
        return self._call(self._access.GetStorageCredentials, request)

    def list_tokens(self, *, page_size: int = PAGE_SIZE) -> Iterator[access_pb2.Token]:
        """The tokens, without their secrets."""
        for page in self._pages(self._access.ListTokens, access_pb2.ListTokensRequest(page_size=page_size)):
            yield from page.tokens

    def revoke_token(self, token_id: str) -> bool:
        """Revokes a token; returns whether there was one."""
        return self._call(self._access.RevokeToken, access_pb2.RevokeTokenRequest(token_id=token_id)).revoked
