"""A table's metadata at a version, and how it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.column_properties import check_bloom_columns, follow_columns
from metaservice.core.table.key_scope import KeyProgress, advanced, altered_scope, key_scope, spans_partitions
from metaservice.core.table.merge_engine import check_merge_engine, merge_engine
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.properties import (
    KEY_CHECKED,
    KEY_SCOPE,
    MERGE_ENGINE,
    PARTIAL,
    check_alterable,
    check_property_name,
)
from metaservice.core.table.schema import Column, Schema, evolve, replace_schema
from metaservice.core.table.schema_changes import Comment, Default, SchemaChange
from metaservice.core.table.view_definition import check_refreshes, check_replaceable, is_view
from metaservice.shared.column_types import BLOOM_COLUMNS

FINGERPRINT_BYTES: Final = 16
KEPT: Final = (KEY_SCOPE, KEY_CHECKED, MERGE_ENGINE)  # of a table that is replaced


class Profile(StrEnum):
    """The rules that judge a table's commits."""

    MAXCOMPUTE = "maxcompute"
    DELTA_SERIALIZABLE = "delta_serializable"
    DELTA_WRITE_SERIALIZABLE = "delta_write_serializable"
    ROW_LEVEL = "row_level"

    @property
    def is_delta(self) -> bool:
        return self in (Profile.DELTA_SERIALIZABLE, Profile.DELTA_WRITE_SERIALIZABLE)

    @property
    def counts_reads(self) -> bool:
        """Whether a transaction can lose by what it read of a table that it does not change."""
        return self is not Profile.MAXCOMPUTE


@dataclass(frozen=True, slots=True)
class Alteration:
    """The fields that a metadata change sets and removes."""

    set_properties: Mapping[str, str] = field(default_factory=dict)
    remove_properties: tuple[str, ...] = ()
    profile: Profile | None = None
    comment: str | None = None
    add_features: tuple[str, ...] = ()
    remove_features: tuple[str, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    replacement: TableMeta | None = None
    name: str | None = None
    checked_keys: KeyProgress | None = None  # alone, and by a call of its own

    @property
    def changes_schema(self) -> bool:
        """Whether it makes a schema version; a comment on a column and a default don't."""
        return any(not isinstance(change, Comment | Default) for change in self.schema_changes)

    @property
    def sets_defaults(self) -> bool:
        if self.replacement is not None:
            return self.replacement.has_defaults
        return any(isinstance(change, Default) and bool(change.default_sql) for change in self.schema_changes)

    @property
    def changes_features(self) -> bool:
        return bool(self.add_features or self.remove_features)

    @property
    def changes_metadata(self) -> bool:
        given = self.set_properties or self.remove_properties or self.profile or self.schema_changes or self.replacement
        is_plain = self.comment is None and self.name is None and self.checked_keys is None
        return bool(given) or not is_plain


@dataclass(frozen=True, slots=True)
class TableMeta:
    """A table's metadata at a version; `payload` is the wire's own message."""

    table_id: str
    name: str
    partitioning: Partitioning
    primary_key: tuple[str, ...]
    buckets: int
    profile: Profile
    schema_version: int
    properties: Mapping[str, str]
    features: frozenset[str]
    comment: str
    columns: tuple[Column, ...]
    create_time_us: int
    digest: str = ""
    last_column_id: int = 0
    has_defaults: bool = field(init=False, default=False, compare=False)
    is_view: bool = field(init=False, default=False, compare=False)  # a materialized one
    key_spans_partitions: bool = field(init=False, default=False, compare=False)  # `key_scope.spans_partitions`
    is_partial: bool = field(init=False, default=False, compare=False)  # its images set single columns
    _fingerprint: str = field(init=False, default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_defaults", any(column.default_sql for column in self.columns))
        object.__setattr__(self, "is_view", is_view(self.properties))
        spans = spans_partitions(self.primary_key, self.partitioning.names, self.properties)
        object.__setattr__(self, "key_spans_partitions", spans)
        object.__setattr__(self, "is_partial", self.keyed and merge_engine(self.properties) == PARTIAL)

    @property
    def keyed(self) -> bool:
        return bool(self.primary_key)

    @property
    def needs_features(self) -> bool:
        """Whether there is something about it that a writer has to know."""
        return bool(self.features) or self.has_defaults or self.key_spans_partitions or self.is_partial

    @property
    def fingerprint(self) -> str:
        """A fingerprint of this definition under this name."""
        if not self._fingerprint:
            parts = (
                self.table_id,
                self.name,
                self.partitioning.columns,
                self.primary_key,
                self.buckets,
                self.profile.value,
                self.schema_version,
                sorted(self.properties.items()),
                sorted(self.features),
                self.comment,
                self.columns,
            )
            digest = blake2b(repr(parts).encode(), digest_size=FINGERPRINT_BYTES).hexdigest()
            object.__setattr__(self, "_fingerprint", digest)
        return self._fingerprint

    @property
    def schema(self) -> Schema:
        return Schema(self.columns, self.partitioning.names, self.primary_key, self.last_column_id)

    def altered(self, change: Alteration) -> TableMeta:
        """The metadata after a change. Raises if the change is not possible."""
        if change.replacement is not None:
            return change.replacement
        if change.checked_keys is not None:
            return replace(self, properties=advanced(self.properties, self.buckets, change.checked_keys))
        properties = self._properties_after(change)
        features = self.features_after(change)
        if len(features) > limits.FEATURES_MAX:
            raise invalid("TOO_MANY_FEATURES", count=len(features), most=limits.FEATURES_MAX)
        before = self
        if change.schema_changes:
            before = self.with_schema(evolve(self.schema, change.schema_changes), new_version=change.changes_schema)
            properties = follow_columns(self.columns, before.columns, properties, but=change.set_properties)
        if BLOOM_COLUMNS in change.set_properties:
            check_bloom_columns(before.columns, properties)
        after = replace(
            before,
            name=self.name if change.name is None else change.name,
            properties=properties,
            profile=change.profile or self.profile,
            comment=self.comment if change.comment is None else change.comment,
            features=features,
        )
        after.check_size()
        return after

    def _properties_after(self, change: Alteration) -> dict[str, str]:
        for name in change.remove_properties:
            if name not in self.properties:
                check_property_name(name)
        for name in (*change.remove_properties, *change.set_properties):
            check_alterable(name)
        properties = {
            name: value for name, value in self.properties.items() if name not in change.remove_properties
        } | dict(change.set_properties)
        columns = self.partitioning.names
        properties = altered_scope(self.primary_key, columns, self.properties, properties)
        if properties.get(KEY_SCOPE) != self.properties.get(KEY_SCOPE):
            check_merge_engine(self.primary_key, columns, properties)
        if len(properties) > limits.PROPERTIES_MAX:
            raise invalid("TOO_MANY_PROPERTIES", count=len(properties), most=limits.PROPERTIES_MAX)
        if change.set_properties:
            check_refreshes(properties)
        return properties

    def check_size(self) -> None:
        """Refuses a definition that is too large for an answer."""
        texts = [self.comment, *self.properties.values()]
        for column in self.columns:
            texts += [
                column.name,
                column.type,
                column.comment,
                column.default_sql,
                *[path for path, _ in column.nested],
            ]
        size = sum(len(text.encode()) for text in texts)
        if size > limits.TABLE_BYTES_MAX:
            raise invalid("TABLE_TOO_LARGE", bytes=size, most=limits.TABLE_BYTES_MAX)

    def features_after(self, change: Alteration) -> frozenset[str]:
        if change.replacement is not None:
            return change.replacement.features
        return (self.features | set(change.add_features)) - set(change.remove_features)

    def with_schema(self, schema: Schema, *, new_version: bool = True) -> TableMeta:
        types = {column.name: column.type for column in schema.columns}
        return replace(
            self,
            columns=schema.columns,
            partitioning=Partitioning(tuple((name, types[name]) for name in schema.partition_columns)),
            primary_key=schema.primary_key,
            last_column_id=schema.last_id,
            schema_version=self.schema_version + new_version,
        )


@dataclass(frozen=True, slots=True)
class View:
    """A query under a name. What it asks is the engine's affair: the service keeps its words."""

    name: str
    payload: bytes  # the wire's View, but for name and times
    create_time_us: int = 0
    replace_time_us: int = 0
    digest: bytes = b""
    since_us: int = 0  # when its name got it: branches that left earlier don't show it


@dataclass(frozen=True, slots=True)
class Namespace:
    """The first part of a table's name."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    create_time_us: int = 0
    digest: bytes = b""
    since_us: int = 0  # as of a view


def replaced_with_assigned_ids(before: TableMeta, definition: TableMeta, last_id: int, given: int) -> TableMeta:
    """Return the same for a client that got ids for its columns, up to `last_id`, and has files with them.

    These ids may be higher than the table's next ones: its forks have got columns, too, up to the id `given`.
    """
    meta = replaced(before, definition)
    if not last_id and given > before.last_column_id:  # it got ids that it does not send
        raise MetaError(ErrorKind.BLOCKED, "CLIENT_TOO_OLD", lacks="last_column_id")
    begun = before.last_column_id + last_id - meta.last_column_id  # the last id that was given before the client's
    if begun > given:
        raise invalid("CHANGES_MISMATCH", "CreateTable with validate_only tells the ids: nobody was told this one")
    return meta if begun <= before.last_column_id else replaced(replace(before, last_column_id=begun), definition)


def replaced(before: TableMeta, definition: TableMeta) -> TableMeta:
    """Return the table's metadata under a new definition: id, name and history stay."""
    check_replaceable(before.properties, definition.properties)
    check_bloom_columns(definition.columns, definition.properties)
    if before.buckets != definition.buckets:
        raise MetaError(
            ErrorKind.BLOCKED,
            "REPLACE_CHANGES_LAYOUT",
            "the number of buckets can't change: drop the table and create it again",
            buckets=before.buckets,
        )
    scope = key_scope(before.primary_key, before.partitioning.names, before.properties)
    if definition.properties.get(KEY_SCOPE, scope) != scope:
        raise MetaError(
            ErrorKind.BLOCKED,
            "REPLACE_CHANGES_LAYOUT",
            "the key's scope can't change: drop the table and create it again",
            key_scope=scope,
        )
    engine = merge_engine(before.properties)
    if merge_engine({MERGE_ENGINE: engine, **definition.properties}) != engine:
        raise MetaError(
            ErrorKind.BLOCKED,
            "REPLACE_CHANGES_LAYOUT",
            "the merge engine can't change: drop the table and create it again",
            merge_engine=engine,
        )
    kept = {name: value for name, value in before.properties.items() if name in KEPT}
    settings = replace(
        before,
        profile=definition.profile,
        properties={**definition.properties, **kept},
        features=definition.features,
        comment=definition.comment,
    )
    return settings.with_schema(replace_schema(before.schema, definition.schema))
