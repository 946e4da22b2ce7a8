"""Grant, service token <-> bytes."""

from __future__ import annotations

from metaservice.core.access import Grant, Place, Role, Token
from metaservice.store import keys
from protos.laketx.storage.v1 import records_pb2 as pb


def encode_grant(grant: Grant) -> bytes:
    return pb.GrantRecord(role=grant.role, by=grant.by, create_us=grant.create_us).SerializeToString()


def decode_grant(key: bytes, raw: bytes) -> Grant:
    record = pb.GrantRecord.FromString(raw)
    place, grantee = keys.split_grant_key(key)
    return Grant(Place.of_key(place), grantee, Role(record.role), record.by, record.create_us)


def encode_token(token: Token) -> bytes:
    return pb.TokenRecord(
        digest=token.digest,
        principal=token.principal,
        groups=token.groups,
        by=token.by,
        create_us=token.create_us,
        expires_us=token.expires_us,
    ).SerializeToString()


def decode_token(key: bytes, raw: bytes) -> Token:
    record = pb.TokenRecord.FromString(raw)
    token_id = key[len(keys.TOKENS) :].decode()
    return Token(
        token_id, record.digest, record.principal, tuple(record.groups), record.by, record.create_us, record.expires_us
    )
