"""The typed client of MetaService: errors decoded from their stable reasons, retries limited per kind."""

from metaservice.client.catalog import (
    add_column,
    comment_column,
    default_column,
    drop_column,
    move_column,
    relax_column,
    rename_column,
    widen_column,
)
from metaservice.client.credentials import Credentials
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
    UnauthenticatedError,
    UnavailableError,
)
from metaservice.client.key_scope import KEY_SCOPE, KeyScope, key_scope
from metaservice.client.meta_client import BatchOutcome, MetaClient
from metaservice.client.profiles import PROFILE_NAMES
from metaservice.client.transaction import Transaction
from metaservice.shared.ids import uuid7

__all__ = [
    "KEY_SCOPE",
    "PROFILE_NAMES",
    "AlreadyExistsError",
    "BatchOutcome",
    "BlockedError",
    "CommitOutcomeUnknownError",
    "ConflictError",
    "CorruptError",
    "Credentials",
    "DeniedError",
    "ErrorKind",
    "ExhaustedError",
    "GoneError",
    "InvalidError",
    "KeyScope",
    "LakeTXError",
    "MetaClient",
    "MetaServiceError",
    "NotFoundError",
    "StaleError",
    "Transaction",
    "UnauthenticatedError",
    "UnavailableError",
    "add_column",
    "comment_column",
    "default_column",
    "drop_column",
    "key_scope",
    "move_column",
    "relax_column",
    "rename_column",
    "uuid7",
    "widen_column",
]
