"""The catalog's calls: namespaces, tables, schemas. `MetaClient` has them all.

client.create_namespace("shop", if_not_exists=True)
table = client.create_table(catalog_pb2.Table(name="shop.orders", columns=[...]), if_not_exists=True)
client.alter_columns(table.table_id, add_column("note", "string"), rename_column("pay", "salary"))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from metaservice.client import features
from metaservice.client.calling import PAGE_SIZE, Caller
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import catalog_pb2, catalog_pb2_grpc, common_pb2

# as the wire takes them, the default first
PROFILE_NAMES: Final = (
    "maxcompute",
    "delta_serializable",
    "delta_write_serializable",
    "row_level",
)
KEY_SCOPE: Final = "key.scope"  # the property
KEY_CHECKED: Final = "key.scope.checked"  # how far the check of the keys is
CHECKING: Final = "checking"  # the scope of a table that waits for it
MERGE_ENGINE: Final = "merge.engine"  # likewise
KeyScope = Literal["table", "partition"]


class CatalogCalls(Caller):
    """Calls of CatalogService, typed; lists are read page by page as they are used."""

    _catalog: catalog_pb2_grpc.CatalogServiceStub

    # ---------------------------------------------------------------------------------------------------- namespaces

    def create_namespace(
        self, name: str, *, properties: Mapping[str, str] | None = None, if_not_exists: bool = False
    ) -> catalog_pb2.Namespace:
        """The first part of its tables' names. With `if_not_exists` one that is there is the answer."""
        request = catalog_pb2.CreateNamespaceRequest(
            name=name, properties=properties, request_id=uuid7(), if_not_exists=if_not_exists
        )
        return self._call(self._catalog.CreateNamespace, request).namespace

    def alter_namespace(
        self, name: str, *, set_properties: Mapping[str, str] | None = None, remove_properties: Iterable[str] = ()
    ) -> catalog_pb2.AlterNamespaceResponse:
        """The namespace with the changed properties, and those of the removed ones that were there."""
        request = catalog_pb2.AlterNamespaceRequest(
            name=name, set_properties=set_properties, remove_properties=remove_properties
        )
        return self._call(self._catalog.AlterNamespace, request)

    def get_namespace(self, name: str) -> catalog_pb2.Namespace:
        """Found in any case of letters."""
        return self._call(self._catalog.GetNamespace, catalog_pb2.GetNamespaceRequest(name=name)).namespace

    def list_namespaces(self, *, branch: str = "", page_size: int = PAGE_SIZE) -> Iterator[catalog_pb2.Namespace]:
        """Namespaces by name; with a branch those that it shows."""
        request = catalog_pb2.ListNamespacesRequest(page_size=page_size, branch=branch)
        for page in self._pages(self._catalog.ListNamespaces, request):
            yield from page.namespaces

    def drop_namespace(self, name: str, *, validate_only: bool = False) -> None:
        """Drops a namespace; refused while it contains tables."""
        self._call(
            self._catalog.DropNamespace, catalog_pb2.DropNamespaceRequest(name=name, validate_only=validate_only)
        )

    # --------------------------------------------------------------------------------------------------------- views

    def put_view(
        self,
        view: catalog_pb2.View,
        *,
        request_id: str | None = None,
        if_not_exists: bool = False,
        or_replace: bool = False,
        must_exist: bool = False,
    ) -> catalog_pb2.View:
        """Creates a view: a query under a name. If the name is taken the call is refused, unless it may stay or be
        replaced; with must_exist an existing view is replaced and none created.
        """
        if if_not_exists and (or_replace or must_exist):
            raise ValueError("give only one of if_not_exists, or_replace and must_exist")
        mode = catalog_pb2.CREATE_MODE_UNSPECIFIED
        if if_not_exists:
            mode = catalog_pb2.CREATE_MODE_IF_NOT_EXISTS
        elif or_replace or must_exist:
            mode = catalog_pb2.CREATE_MODE_OR_REPLACE
        self._need(features.VIEWS)
        request = catalog_pb2.PutViewRequest(
            view=view,
            request_id=request_id or uuid7(),
            principal=self._principal,
            mode=mode,
            must_exist=must_exist,
        )
        return self._call(self._catalog.PutView, request).view

    def get_view(self, name: str) -> catalog_pb2.View:
        """Found in any case of letters."""
        return self._call(self._catalog.GetView, catalog_pb2.GetViewRequest(name=name)).view

    def list_views(
        self, *, namespace: str = "", branch: str = "", page_size: int = PAGE_SIZE
    ) -> Iterator[catalog_pb2.View]:
        """Views by name; with a namespace only its views, with a branch those that it shows, named VIEW@BRANCH."""
        request = catalog_pb2.ListViewsRequest(page_size=page_size, namespace=namespace, branch=branch)
        for page in self._pages(self._catalog.ListViews, request):
            yield from page.views

    def rename_view(self, name: str, new_name: str) -> catalog_pb2.View:
        """Renames a view, also into another namespace."""
        request = catalog_pb2.RenameViewRequest(name=name, new_name=new_name)
        return self._call(self._catalog.RenameView, request).view

    def drop_view(self, name: str) -> bool:
        """Whether there was one."""
        return self._call(self._catalog.DropView, catalog_pb2.DropViewRequest(name=name)).dropped

    # -------------------------------------------------------------------------------------------------------- tables

    def create_table(
        self,
        table: catalog_pb2.Table,
        *,
        request_id: str | None = None,
        if_not_exists: bool = False,
        or_replace: bool = False,
        validate_only: bool = False,
    ) -> catalog_pb2.Table:
        """Creates a table; with validate_only returns it as it would be.

        If the name is taken the call is refused; with if_not_exists it returns the existing table, with or_replace it
        empties and redefines that table.
        """
        if if_not_exists and or_replace:
            raise ValueError("give only one of if_not_exists and or_replace")
        if any(column.default_sql for column in table.columns):
            self._need(features.COLUMN_DEFAULTS)
        mode = catalog_pb2.CREATE_MODE_UNSPECIFIED
        if if_not_exists:
            mode = catalog_pb2.CREATE_MODE_IF_NOT_EXISTS
        elif or_replace:
            mode = catalog_pb2.CREATE_MODE_OR_REPLACE
        request = catalog_pb2.CreateTableRequest(
            request_id=request_id or uuid7(),
            table=table,
            principal=self._principal,
            mode=mode,
            validate_only=validate_only,
        )
        return self._call(self._catalog.CreateTable, request).table

    def get_table(
        self, name: str = "", *, table_id: str = "", version: int | None = None, schema_version: int | None = None
    ) -> catalog_pb2.Table:
        """A table by name or id; with a version its metadata as of that version."""
        request = catalog_pb2.GetTableRequest(
            name=name, table_id=table_id, version=version, schema_version=schema_version
        )
        return self._call(self._catalog.GetTable, request).table

    def list_tables(
        self,
        *,
        namespace: str = "",
        branch: str = "",
        include_dropped: bool = False,
        with_imports: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> Iterator[catalog_pb2.Table]:
        """Tables by name; dropped ones, which have a drop_time_us, come last.

        With a branch those that it shows, named TABLE@BRANCH. One that nobody has looked at there has no table_id yet.
        `with_imports` sets `has_imports` of those with external files.
        """
        if branch:
            self._need(features.BRANCHES)
        request = catalog_pb2.ListTablesRequest(
            page_size=page_size,
            namespace=namespace,
            branch=branch,
            include_dropped=include_dropped,
            with_imports=with_imports,
        )
        for page in self._pages(self._catalog.ListTables, request):
            yield from page.tables

    def list_table_page(
        self,
        *,
        namespace: str = "",
        branch: str = "",
        name_contains: str = "",
        page_size: int = PAGE_SIZE,
        page_token: str = "",
    ) -> catalog_pb2.ListTablesResponse:
        """One page of tables, for callers that show pages: its token is for the next one.

        A service of an earlier release does not know `name_contains`, and answers all names.
        """
        if branch:
            self._need(features.BRANCHES)
        request = catalog_pb2.ListTablesRequest(
            page_size=page_size,
            namespace=namespace,
            branch=branch,
            page_token=page_token,
            name_contains=name_contains,
        )
        return self._call(self._catalog.ListTables, request)

    def list_schemas(self, table_id: str, *, page_size: int = PAGE_SIZE) -> Iterator[catalog_pb2.SchemaVersion]:
        """Schema versions, oldest first."""
        request = catalog_pb2.ListSchemasRequest(table_id=table_id, page_size=page_size)
        for page in self._pages(self._catalog.ListSchemas, request):
            yield from page.schemas

    def alter_table(
        self,
        table_id: str,
        alteration: common_pb2.Alteration,
        *,
        txn_id: str | None = None,
        commit_message: str = "",
        validate_only: bool = False,
    ) -> catalog_pb2.AlterTableResponse:
        """The table after the change, and its version; with validate_only the table as it would be."""
        if any(change.HasField("default") for change in alteration.schema_changes):
            self._need(features.COLUMN_DEFAULTS)
        request = catalog_pb2.AlterTableRequest(
            txn_id=txn_id or uuid7(),
            table_id=table_id,
            alteration=alteration,
            principal=self._principal,
            commit_message=commit_message,
            validate_only=validate_only,
        )
        return self._call(self._catalog.AlterTable, request, decides=(request.txn_id,))

    def alter_columns(
        self, table_id: str, *changes: common_pb2.SchemaChange, commit_message: str = ""
    ) -> catalog_pb2.Table:
        """Makes all changes in order, in one commit; returns the table after it."""
        alteration = common_pb2.Alteration(schema_changes=changes)
        return self.alter_table(table_id, alteration, commit_message=commit_message).table

    def rename_table(self, table_id: str, name: str, *, commit_message: str = "") -> catalog_pb2.Table:
        """Renames a table and returns it; the old name is free at once."""
        return self.alter_table(table_id, common_pb2.Alteration(name=name), commit_message=commit_message).table

    def drop_table(self, table_id: str, *, validate_only: bool = False) -> int:
        """Drops a table; returns the number of open transactions that ended with it, or would end."""
        request = catalog_pb2.DropTableRequest(
            table_id=table_id, validate_only=validate_only, principal=self._principal
        )
        return self._call(self._catalog.DropTable, request).ended_transactions

    def undrop_table(self, table_id: str) -> catalog_pb2.Table:
        """Brings a dropped table back under its name, until its purge has begun."""
        return self._call(self._catalog.UndropTable, catalog_pb2.UndropTableRequest(table_id=table_id)).table

    def find_dropped_tables(self, name: str) -> list[catalog_pb2.Table]:
        """Returns dropped tables with this name, newest drop first."""
        namespace = name.partition(".")[0] if "." in name else ""
        tables = self.list_tables(namespace=namespace, include_dropped=True)
        dropped = [table for table in tables if table.name.lower() == name.lower() and table.HasField("drop_time_us")]
        return sorted(dropped, key=lambda table: -table.drop_time_us)


def add_column(
    path: str, type_name: str, *, comment: str = "", after: str = "", first: bool = False
) -> common_pb2.SchemaChange:
    """Adds a nullable column, or by a dotted path a field of a struct; by default at the end."""
    place = common_pb2.ColumnPlace(after=after) if after or first else None
    return common_pb2.SchemaChange(add=common_pb2.AddColumn(path=path, type=type_name, comment=comment, place=place))


def drop_column(path: str) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(drop=common_pb2.DropColumn(path=path))


def rename_column(path: str, name: str) -> common_pb2.SchemaChange:
    """Renames a column; `name` replaces the last part of the path."""
    return common_pb2.SchemaChange(rename=common_pb2.RenameColumn(path=path, name=name))


def move_column(path: str, *, after: str = "") -> common_pb2.SchemaChange:
    """Moves a column behind another one of the same struct; without one to the front."""
    return common_pb2.SchemaChange(move=common_pb2.MoveColumn(path=path, place=common_pb2.ColumnPlace(after=after)))


def widen_column(path: str, type_name: str) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(widen=common_pb2.WidenColumn(path=path, type=type_name))


def relax_column(path: str) -> common_pb2.SchemaChange:
    """Allows NULL from now on."""
    return common_pb2.SchemaChange(relax=common_pb2.RelaxColumn(path=path))


def default_column(path: str, default_sql: str) -> common_pb2.SchemaChange:
    """Sets what inserts write that leave the column out, such as "'new'"; empty: NULL."""
    return common_pb2.SchemaChange(default=common_pb2.DefaultColumn(path=path, default_sql=default_sql))


def comment_column(path: str, comment: str) -> common_pb2.SchemaChange:
    return common_pb2.SchemaChange(comment=common_pb2.CommentColumn(path=path, comment=comment))


def key_scope(table: catalog_pb2.Table) -> KeyScope | None:
    """Where the primary key is unique: in the table or a partition; None without a key.

    If no property says it, the columns do.
    """
    if not table.primary_key:
        return None
    scope = table.properties.get(KEY_SCOPE)
    if scope == "table" or (scope != "partition" and set(table.partition_columns) <= set(table.primary_key)):
        return "table"
    return "partition"


def is_partial(table: catalog_pb2.Table) -> bool:
    """Whether an image of a row may set single columns: the others keep what they have."""
    return bool(table.primary_key) and table.properties.get(MERGE_ENGINE) == "partial"


def key_spans_partitions(table: catalog_pb2.Table) -> bool:
    """Whether writers keep a key unique that lacks partition columns: they look it up in all partitions.

    While the keys that are there are checked, `key_scope` still is "partition".
    """
    lacks = not set(table.partition_columns) <= set(table.primary_key)
    return lacks and table.properties.get(KEY_SCOPE) in ("table", CHECKING)


def new_properties(table: catalog_pb2.Table) -> dict[str, str]:
    """The properties of a new table like this one, which has no keys to check."""
    properties = {name: text for name, text in table.properties.items() if name != KEY_CHECKED}
    return {name: "table" if (name, text) == (KEY_SCOPE, CHECKING) else text for name, text in properties.items()}


def keys_checked(table: catalog_pb2.Table) -> tuple[int, int] | None:
    """The number of the check of the table's keys, and of how many buckets it is done; None if none runs."""
    if not key_spans_partitions(table) or key_scope(table) == "table":
        return None
    check, _, buckets = table.properties[KEY_CHECKED].partition(":")
    return int(check), int(buckets)
