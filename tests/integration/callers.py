"""Calls of a service by name, as somebody: with a token, or as the owner of its socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message

from protos.laketx.v1 import (
    access_pb2,
    admin_pb2,
    catalog_pb2,
    maintenance_pb2,
    read_pb2,
    transaction_pb2,
)
from tests.conformance.play import new_uuid7
from tests.integration.service import TIMEOUT_S, Service, data_file, reason_of, service

FILES = (transaction_pb2, catalog_pb2, read_pb2, maintenance_pb2, admin_pb2, access_pb2)
METHODS = {
    f"/{found.full_name}/{method.name}": method
    for file in FILES
    for found in file.DESCRIPTOR.services_by_name.values()
    for method in found.methods
}
OWNER_SOCKET = "owner.sock"
COLUMNS = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
Metadata = tuple[tuple[str, str], ...]


class Caller:
    """Somebody's calls."""

    def __init__(self, address: str, token: str = "", metadata: Metadata = ()) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.metadata = (*metadata, *((("authorization", f"Bearer {token}"),) if token else ()))

    def call(self, name: str, request: Message | None = None, /, **fields: Any) -> Any:
        """The answer of `Service/Method`; of a stream, its answers. Raises RpcError."""
        path = name if name.startswith("/") else f"/laketx.v1.{name}"
        method = METHODS[path]
        kinds = [message_factory.GetMessageClass(one) for one in (method.input_type, method.output_type)]
        asked = kinds[0](**fields) if request is None else request
        given: Any = asked
        kind = "unary_unary"
        if method.client_streaming:
            kind, given = "stream_unary", iter([asked])
        elif method.server_streaming:
            kind = "unary_stream"
        if method.client_streaming and method.server_streaming:
            kind = "stream_stream"
        made = getattr(self.channel, kind)(
            path, request_serializer=kinds[0].SerializeToString, response_deserializer=kinds[1].FromString
        )
        answer = made(given, timeout=TIMEOUT_S, metadata=self.metadata)
        return list(answer) if method.server_streaming else answer

    def outcome(self, name: str, request: Message | None = None, /, **fields: Any) -> str:
        """`ok`, or the reason of the refusal."""
        try:
            self.call(name, request, **fields)
        except grpc.RpcError as error:
            return reason_of(error)
        return "ok"

    def close(self) -> None:
        self.channel.close()


def create(caller: Caller, name: str) -> str:
    table = catalog_pb2.Table(name=name, columns=COLUMNS, partition_columns=["day"])
    answer = caller.call("CatalogService/CreateTable", request_id=new_uuid7(), table=table)
    return str(answer.table.table_id)


def append(caller: Caller, table_id: str, features: Sequence[str] = ()) -> str:
    txn_id = new_uuid7()
    files = [data_file(txn_id)]
    caller.call("TransactionService/Append", txn_id=txn_id, table_id=table_id, files=files, client_features=features)
    return txn_id


class Guarded:
    """A service that asks who calls, and those who call it."""

    def __init__(self, one: Service) -> None:
        self.service = one
        self.owner = Caller(f"unix:{one.folder}/{OWNER_SOCKET}")
        self._callers = [self.owner]

    def token(self, principal: str, *groups: str, valid_ms: int = 0) -> str:
        made = self.owner.call("AccessService/CreateToken", principal=principal, groups=groups, valid_ms=valid_ms)
        return str(made.secret)

    def caller(self, token: str = "", metadata: Metadata = ()) -> Caller:
        self._callers.append(Caller(self.service.address, token, metadata))
        return self._callers[-1]

    def named(self, principal: str, *groups: str) -> Caller:
        return self.caller(self.token(principal, *groups))

    def grant(self, grantee: str, role: str, *, namespace: str = "", table_id: str = "") -> None:
        place = access_pb2.Place(namespace=namespace, table_id=table_id)
        grant = access_pb2.Grant(place=place, grantee=grantee, role=access_pb2.Role.Value(f"ROLE_{role.upper()}"))
        self.owner.call("AccessService/Grant", grant=grant)

    def close(self) -> None:
        for one in self._callers:
            one.close()


@contextmanager
def guarded(folder: Path, *flags: str) -> Iterator[Guarded]:
    with service(folder, "--tokens", "true", *flags) as (one, _):
        made = Guarded(one)
        try:
            yield made
        finally:
            made.close()
