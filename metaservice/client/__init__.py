"""Typed calls to MetaService: errors decoded from their stable reasons, retries bounded per kind."""

from metaservice.client.errors import (
    AlreadyExistsError,
    BlockedError,
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptError,
    DeniedError,
    ErrorKind,
    ExhaustedError,
    GoneError,
    InvalidError,
    LakeTXError,
    MetaServiceError,
    NotFoundError,
    StaleError,
    UnavailableError,
)
from metaservice.client.ids import uuid7
from metaservice.client.meta_client import BatchOutcome, MetaClient
from metaservice.client.transaction import Transaction

__all__ = [
    "AlreadyExistsError",
    "BatchOutcome",
    "BlockedError",
    "CommitOutcomeUnknownError",
    "ConflictError",
    "CorruptError",
    "DeniedError",
    "ErrorKind",
    "ExhaustedError",
    "GoneError",
    "InvalidError",
    "LakeTXError",
    "MetaClient",
    "MetaServiceError",
    "NotFoundError",
    "StaleError",
    "Transaction",
    "UnavailableError",
    "uuid7",
]
