"""The columns of a table by id, and how they change.

An id is given once and never again: a renamed column keeps it, a dropped one takes it along. A change of the schema
must leave every stored row readable and every partition's text and key's hash as they are.

    version 1   id 1 "id" bigint, id 2 "pay" int
    version 2   id 1 "id" bigint, id 2 "salary" bigint       renamed and widened
    version 3   id 1 "id" bigint, id 3 "pay" string          dropped, and a new one under the old name
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.partitions import wire_kind
from metaservice.core.table.schema_changes import (
    Add,
    ColumnPlace,
    Comment,
    Default,
    Drop,
    Move,
    Relax,
    Rename,
    SchemaChange,
    Widen,
)
from metaservice.core.table.types import (
    check_name,
    check_unique,
    count_fields,
    did_you_mean,
    folded,
    may_widen,
    nested_ids,
    parse_type,
    split_path,
    with_ids,
    with_new_ids,
)
from metaservice.shared.column_types import (
    INTEGERS,
    Array,
    Atomic,
    Decimal,
    Field,
    Map,
    Struct,
    Type,
    quoted,
    type_text,
)

NO_KEY: Final = frozenset({"float", "double"})  # -0.0 and NaN: equal values of different bits
RESERVED: Final = frozenset(  # what files, reads and increments of workers have beside the columns
    {
        *("_op", "_row_id", "_file", "_part", "_tmp_metadata_row_index"),
        *("_change_type", "_commit_version", "_commit_time", "_set_columns"),
    }
)
RESERVED_PREFIX: Final = "_laketx_"


class Column(NamedTuple):
    """A column; `nested` holds the ids of fields inside its type, by path."""

    name: str
    type: str
    nullable: bool
    comment: str = ""
    column_id: int = 0
    nested: tuple[tuple[str, int], ...] = ()
    default_sql: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns, with look-ups by name."""

    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    last_id: int = 0


def make_schema(columns: Sequence[Column], partition_columns: Sequence[str], primary_key: Sequence[str]) -> Schema:
    """A table's first schema: checked, with canonical types and new ids."""
    names = {folded(column.name): column.name for column in columns}
    parts, key = ([names.get(folded(name), name) for name in listed] for listed in (partition_columns, primary_key))
    draft = _Draft.of(Schema((), tuple(parts), tuple(key)))
    fields = []
    for column in columns:
        _check_column_name(column.name)
        fields.append(draft.numbered(_field_of(column._replace(column_id=0, nested=()))))
    draft.root = Struct(tuple(fields))
    return draft.finish()


def evolve(schema: Schema, changes: Iterable[SchemaChange]) -> Schema:
    """The schema after the changes, applied in order. Raises if one of them is not possible."""
    draft = _Draft.of(schema)
    for change in changes:
        draft.apply(change)
    return draft.finish()


def replace_schema(before: Schema, definition: Schema) -> Schema:
    """Return a new definition's columns for an emptied table: a column that keeps its name and type keeps its id.

    Partition and key columns stay as they are, because old commits depend on them.
    """
    layout = (
        before.partition_columns,
        before.primary_key,
        _types(before, before.partition_columns + before.primary_key),
    )
    new_layout = (
        definition.partition_columns,
        definition.primary_key,
        _types(definition, definition.partition_columns + definition.primary_key),
    )
    if layout != new_layout:
        raise MetaError(
            ErrorKind.BLOCKED,
            "REPLACE_CHANGES_LAYOUT",
            "partition columns, key and their types can't change: drop the table and create it again",
            partition_columns=",".join(before.partition_columns),
            primary_key=",".join(before.primary_key),
        )
    existing = {(column.name, column.type): column for column in before.columns}
    draft = _Draft.of(replace(definition, last_id=before.last_id))
    fields = []
    for column in definition.columns:
        old = existing.get((column.name, column.type))
        bare = _field_of(
            column._replace(column_id=0, nested=())
            if old is None
            else column._replace(column_id=old.column_id, nested=old.nested)
        )
        fields.append(draft.numbered(bare))
    draft.root = Struct(tuple(fields))
    return draft.finish()


@dataclass(slots=True)
class _Draft:
    """A schema during changes: one struct whose fields are the columns."""

    schema: Schema
    root: Struct
    last_id: int
    renamed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: Schema) -> _Draft:
        return cls(schema, Struct(tuple(_field_of(column) for column in schema.columns)), schema.last_id)

    def finish(self) -> Schema:
        schema = self.schema
        columns = tuple(
            Column(
                field.name,
                type_text(field.kind),
                field.nullable,
                field.comment,
                field.field_id,
                tuple(nested_ids(field.kind)),
                field.default_sql,
            )
            for field in self.root.fields
        )
        names = [
            tuple(self.renamed.get(name, name) for name in part)
            for part in (schema.partition_columns, schema.primary_key)
        ]
        finished = Schema(columns, names[0], names[1], self.last_id)
        check_schema(finished, self.root)
        return finished

    def apply(self, change: SchemaChange) -> None:
        parts = self._as_written(split_path(change.path))
        top = parts[0] if len(parts) == 1 else ""
        keyed = top in self._now(self.schema.primary_key)
        partitioned = top in self.schema.partition_columns
        _check_fixed(change, keyed=keyed, partitioned=partitioned)
        match change:
            case Add():
                (_check_column_name if top else check_name)(parts[-1])
                self._edit(parts, lambda struct, name: self._added(struct, name, change))
            case Drop():
                self._edit(parts, _dropped)
            case Rename():
                (_check_column_name if top else check_name)(change.name)
                self._edit(parts, lambda struct, name: _changed(struct, name, name_now=change.name))
                if keyed:
                    self._follow(top, change.name)
            case Move():
                self._edit(parts, lambda struct, name: _moved(struct, name, change.place))
            case Widen():
                self._widen(parts, change, partitioned=partitioned)
            case Relax():
                self._edit(parts, lambda struct, name: _changed(struct, name, nullable=True))
            case Comment():
                if not top:
                    raise invalid("COMMENT_NESTED", column=change.path[:128])
                self._edit(parts, lambda struct, name: _changed(struct, name, comment=change.comment))
            case Default():
                if not top:
                    raise invalid("DEFAULT_NESTED", column=change.path[:128])
                self._edit(parts, lambda struct, name: _changed(struct, name, default_sql=change.default_sql))

    def _as_written(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Replace the column's name by its stored spelling. Names of fields are matched at look-up."""
        written = {folded(field.name): field.name for field in self.root.fields}
        return written.get(folded(parts[0]), parts[0]), *parts[1:]

    def _widen(self, parts: Sequence[str], change: Widen, *, partitioned: bool) -> None:
        wider = parse_type(change.type)
        root = _replaced(self.root, parts, change.path, lambda kind: _widened(kind, wider, change.path, partitioned))
        self.root = _as_struct(root, change.path)

    def numbered(self, field: Field) -> Field:
        number = field.field_id or self._next_id()
        return replace(field, field_id=number, kind=with_new_ids(field.kind, self._next_id))

    def _now(self, names: Sequence[str]) -> set[str]:
        return {self.renamed.get(name, name) for name in names}

    def _follow(self, before: str, after: str) -> None:
        first = next((old for old, now in self.renamed.items() if now == before), before)
        self.renamed[first] = after

    def _edit(self, parts: Sequence[str], edit: Callable[[Struct, str], Struct]) -> None:
        path = ".".join(map(quoted, parts))
        root = _replaced(self.root, parts[:-1], path, lambda kind: edit(_as_struct(kind, path), parts[-1]))
        self.root = _as_struct(root, path)

    def _added(self, struct: Struct, name: str, change: Add) -> Struct:
        if not change.nullable:
            raise invalid("COLUMN_NOT_NULLABLE", column=change.path[:128])
        if any(folded(field.name) == folded(name) for field in struct.fields):
            raise MetaError(ErrorKind.ALREADY_EXISTS, "COLUMN_EXISTS", column=change.path[:128])
        fresh = self.numbered(Field(name, parse_type(change.type), True, 0, change.comment))
        grown = Struct((*struct.fields, fresh))
        return grown if change.place is None else _moved(grown, name, change.place)

    def _next_id(self) -> int:
        if self.last_id >= limits.COLUMN_ID_MAX:
            raise MetaError(ErrorKind.BLOCKED, "COLUMN_IDS_EXHAUSTED", last=self.last_id)
        self.last_id += 1
        return self.last_id


def _check_fixed(change: SchemaChange, *, keyed: bool, partitioned: bool) -> None:
    """Refuses changes of key and partition columns that must not happen."""
    match change:
        case Drop() if keyed or partitioned:
            raise _fixed(change.path, "a key or partition column can't be dropped")
        case Rename() if partitioned:
            raise _fixed(change.path, "a partition column keeps its name: partitions are told apart by it")
        case Widen() if keyed:
            raise _fixed(change.path, "a key column keeps its type: hashes depend on it")
        case Relax() if keyed:
            raise _fixed(change.path, "a key column takes no NULL")
        case _:
            pass


def check_schema(schema: Schema, root: Struct) -> None:
    """Checks the rules of every schema of a table."""
    columns = root.fields
    if not 1 <= len(columns) <= limits.COLUMNS_MAX:
        raise invalid("COLUMNS_INVALID", count=len(columns), most=limits.COLUMNS_MAX)
    if count_fields(root) > limits.FIELDS_MAX:
        raise invalid("TOO_MANY_FIELDS", count=count_fields(root), most=limits.FIELDS_MAX)
    check_unique(column.name for column in columns)
    by_name = {column.name: column for column in columns}
    for names, what in ((schema.partition_columns, "partition"), (schema.primary_key, "key")):
        if len(set(names)) != len(names):
            raise invalid("COLUMN_TWICE", "a column is named twice: name each once", what=what)
        for name in names:
            if name not in by_name:
                raise _unknown(name, root)
            if wire_kind(type_text(by_name[name].kind)) is None:
                raise invalid(
                    "TYPE_NOT_ALLOWED",
                    "its values have no order: choose another type",
                    what=what,
                    column=name,
                )
    for name in schema.primary_key:
        if by_name[name].nullable:
            raise invalid("KEY_NULLABLE", "a key column is nullable: declare it NOT NULL", column=name)
        if type_text(by_name[name].kind) in NO_KEY:
            raise invalid(
                "TYPE_NOT_ALLOWED",
                "equal numbers may have different bits: choose another type",
                what="key",
                column=name,
            )


def _field_of(column: Column) -> Field:
    kind = with_ids(parse_type(column.type), dict(column.nested))
    return Field(column.name, kind, column.nullable, column.column_id, column.comment, column.default_sql)


def _types(schema: Schema, names: Sequence[str]) -> list[str]:
    types = {column.name: column.type for column in schema.columns}
    return [types[name] for name in names]


def _check_column_name(name: str) -> None:
    """Checks a new column's name. Older tables keep theirs."""
    check_name(name)
    if name.lower() in RESERVED or name.lower().startswith(RESERVED_PREFIX):
        raise invalid("COLUMN_RESERVED", "files and reads of workers use that name: choose another", column=name)


def _replaced(kind: Type, parts: Sequence[str], path: str, change: Callable[[Type], Type]) -> Type:
    """The type with the part at a path replaced."""
    if not parts:
        return change(kind)
    name, rest = parts[0], parts[1:]
    match kind:
        case Struct():
            at = _find(kind, name, path)
            return _put(kind, at, replace(kind.fields[at], kind=_replaced(kind.fields[at].kind, rest, path, change)))
        case Array(element) if name == "element":
            return replace(kind, element=_replaced(element, rest, path, change))
        case Map(_, value) if name == "value":
            return replace(kind, value=_replaced(value, rest, path, change))
        case Map() if name == "key":
            raise _fixed(path, "the keys of a map stay as they are")
        case _:
            raise invalid("COLUMN_UNKNOWN", column=path[:128])


def _find(struct: Struct, name: str, path: str) -> int:
    for at, child in enumerate(struct.fields):
        if folded(child.name) == folded(name):
            return at
    raise _unknown(name, struct, path)


def _put(struct: Struct, at: int, field: Field) -> Struct:
    return Struct((*struct.fields[:at], field, *struct.fields[at + 1 :]))


def _as_struct(kind: Type, path: str) -> Struct:
    if not isinstance(kind, Struct):
        raise invalid("COLUMN_UNKNOWN", "only structs have named fields", column=path[:128])
    return kind


def _dropped(struct: Struct, name: str) -> Struct:
    at = _find(struct, name, name)
    if len(struct.fields) == 1:
        raise invalid("COLUMNS_INVALID", "the last column or field can't be dropped", column=name)
    return Struct(struct.fields[:at] + struct.fields[at + 1 :])


def _changed(
    struct: Struct,
    name: str,
    *,
    name_now: str | None = None,
    nullable: bool | None = None,
    comment: str | None = None,
    default_sql: str | None = None,
) -> Struct:
    at = _find(struct, name, name)
    field = struct.fields[at]
    if name_now is not None:
        others = {folded(other.name) for other in struct.fields if other is not field}
        if folded(name_now) in others or name_now == field.name:
            raise MetaError(ErrorKind.ALREADY_EXISTS, "COLUMN_EXISTS", column=name_now)
        field = replace(field, name=name_now)
    if nullable is not None:
        field = replace(field, nullable=nullable)
    if comment is not None:
        field = replace(field, comment=comment)
    if default_sql is not None:
        field = replace(field, default_sql=default_sql)
    return _put(struct, at, field)


def _moved(struct: Struct, name: str, place: ColumnPlace) -> Struct:
    field = struct.fields[_find(struct, name, name)]
    others = Struct(tuple(other for other in struct.fields if other is not field))
    after = split_path(place.after)[-1] if place.after else ""
    if folded(after) == folded(name):
        raise invalid("PLACE_INVALID", "a column can't be moved behind itself", column=name)
    at = _find(others, after, place.after) + 1 if after else 0
    return Struct((*others.fields[:at], field, *others.fields[at:]))


def _widened(before: Type, after: Type, path: str, partitioned: bool) -> Type:
    allowed = may_widen(before, after)
    if allowed and partitioned:  # the canonical text of a partition must stay the same
        match before, after:
            case Atomic(narrow), Atomic(wide):
                allowed = narrow in INTEGERS and wide in INTEGERS
            case _:
                allowed = isinstance(before, Decimal)
    if not allowed:
        raise invalid("TYPE_NOT_WIDER", column=path[:128], before=type_text(before)[:64], after=type_text(after)[:64])
    return after


def _fixed(path: str, message: str) -> MetaError:
    return MetaError(ErrorKind.BLOCKED, "COLUMN_FIXED", message, column=path[:128])


def _unknown(name: str, struct: Struct, path: str = "") -> MetaError:
    names = [field.name for field in struct.fields]
    return invalid("COLUMN_UNKNOWN", column=(path or name)[:128], **did_you_mean(name, names))
