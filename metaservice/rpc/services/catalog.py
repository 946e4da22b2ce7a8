"""CatalogService: convert, ask, convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar
from uuid import UUID

from metaservice.core.access import Place
from metaservice.core.errors import invalid
from metaservice.core.table.branches import branch_of, on_branch
from metaservice.core.table.meta import Namespace, TableMeta, View
from metaservice.core.table.model import Principal
from metaservice.rpc.auth.authorization import Maker
from metaservice.rpc.auth.caller import namespace_of
from metaservice.rpc.convert import answers, wire, wire_catalog
from metaservice.rpc.convert.client_features import Reader
from metaservice.rpc.convert.paging import Room, bound_start, bound_token, fitting, page_size
from metaservice.rpc.convert.wire_schema import column_messages
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.branches import BranchMethods
from metaservice.service.decider.forking import get_branch
from metaservice.service.decider.views import TableView
from metaservice.service.table.branch_listing import ListedTable
from metaservice.service.table.catalog import Mode
from metaservice.service.table.listing import Dropped
from protos.laketx.v1 import catalog_pb2 as pb
from protos.laketx.v1 import catalog_pb2_grpc

LIVE, DROPPED = b"n", b"d"
UUID_BYTES = 16
LISTED_AT_ONCE: Final = 1_000  # of which the caller may see few

Listed = TypeVar("Listed", Namespace, View)


class CatalogServicer(BranchMethods, catalog_pb2_grpc.CatalogServiceServicer):
    """Namespaces, tables and views."""

    def CreateTable(self, request: pb.CreateTableRequest, context: Context) -> pb.CreateTableResponse:
        mode, meta = wire_catalog.create_mode(request), wire_catalog.new_table(request)
        who = wire.principal(request.principal)
        catalog, maker = self._calls.catalog, self._gate.maker(context)
        if request.validate_only:
            table, created = self._ask(lambda: catalog.would_create(meta, mode))
        else:
            table, created = self._ask(lambda: self._create(meta, who, mode, maker))
        return pb.CreateTableResponse(table=answers.table(table), created=created)

    def _create(self, meta: TableMeta, who: Principal, mode: Mode, maker: Maker) -> tuple[TableView, bool]:
        """With its admin, if this call makes the table. On the decider's thread."""
        catalog = self._calls.catalog
        if not catalog.would_make(meta, mode):
            return catalog.create_table(meta, who, mode)
        own = maker.owning(namespace_of(meta.name))
        made = catalog.create_table(meta, who, mode)
        own(Place(table_id=meta.table_id))
        return made

    def GetTable(self, request: pb.GetTableRequest, context: Context) -> pb.GetTableResponse:
        if bool(request.name) == bool(request.table_id):
            raise invalid("TABLE_NOT_NAMED", "give either a table name or a table id")
        table_id = wire.table_id(request.table_id) if request.table_id else ""
        table = self._calls.reads.get_table(name=request.name, table_id=table_id)
        Reader.of(context).check_table(table.folder_id)
        named = [field for field in ("schema_version", "version", "time_us", "tag") if request.HasField(field)]
        if len(named) > 1:
            raise invalid("VERSION_TWICE", "give a schema version, an ID version, a time or a tag: one of them")
        if named == ["schema_version"]:
            meta = self._calls.catalog.tables.at_schema_version(table, request.schema_version)
            return pb.GetTableResponse(table=answers.table(table, meta))
        if not named:
            return pb.GetTableResponse(table=answers.table(table, self._calls.catalog.tables.numbered(table)))
        version = self._version_at(table, request)
        meta = self._calls.reads.meta_at(table, version)
        return pb.GetTableResponse(table=answers.table(table, meta), version=version)

    def _version_at(self, table: TableView, request: pb.GetTableRequest) -> int:
        reads = self._calls.reads
        if request.HasField("time_us"):
            return self._ask(lambda: reads.resolve_time(table, request.time_us)).version
        tagged = self._tagged_version(table.meta.table_id, request.tag) if request.HasField("tag") else request.version
        return reads.check_version(table, tagged)

    def ListTables(self, request: pb.ListTablesRequest, context: Context) -> pb.ListTablesResponse:
        size, namespace = page_size(request.page_size), request.namespace
        if namespace:
            wire_catalog.namespace_name(namespace)
            whole = on_branch(namespace, request.branch)
            self._ask(lambda: self._calls.catalog.namespaces.get(whole))
        contains = wire.text(request.name_contains, "name_contains", 256)
        if request.branch:
            return self._tables_on_branch(request, size, contains, context)
        filters = ("tables", namespace, str(request.include_dropped), *([contains] if contains else []))
        start = bound_start(request.page_token, *filters)
        kind, after = start[:1], start[1:]
        if start and not _is_place(kind, after):
            raise invalid("PAGE_TOKEN_INVALID")
        tables: list[pb.Table] = []
        place, last_live, room = b"", "", Room()
        if kind != DROPPED:
            live, following = self._calls.catalog.tables.list_live(
                namespace, after.decode(), size, contains, self._gate.reads(context)
            )
            imported = self._calls.reads.imported(table for _, table in live) if request.with_imports else ()
            listed = (answers.table(table, has_imports=table.raw_id in imported) for _, table in live)
            tables = list(fitting(listed, room))
            if len(tables) < len(live):
                following, _ = live[len(tables) - 1]
            last_live = live[-1][0] if live else ""
            place = LIVE + following.encode() if following else b""
        if not place and request.include_dropped and len(tables) < size:
            rest = size - len(tables)
            from_id = after if kind == DROPPED else b""
            dropped, last = self._calls.catalog.tables.list_dropped(namespace, from_id, rest)
            dropped = [gone for gone in dropped if contains.lower() in gone.table.meta.name.lower()]
            shown = list(fitting(map(_dropped_table, dropped), room))
            if dropped and not shown:  # the live ones have filled the page
                place = LIVE + last_live.encode()
            else:
                last = last if len(shown) == len(dropped) else UUID(shown[-1].table_id).bytes
                place = DROPPED + last if last else b""
            tables += shown
        return pb.ListTablesResponse(tables=tables, next_page_token=bound_token(place, *filters))

    def _tables_on_branch(
        self, request: pb.ListTablesRequest, size: int, contains: str, context: Context
    ) -> pb.ListTablesResponse:
        if request.include_dropped:
            raise invalid("DROPPED_ON_BRANCH", branch=request.branch)
        filters = ("tables", request.namespace, "on branch", request.branch, contains)
        after = bound_start(request.page_token, *filters)
        if after and not _is_name(after):
            raise invalid("PAGE_TOKEN_INVALID")
        branch = self._ask(lambda: get_branch(self._calls.decider.state, request.branch))
        listed = self._calls.catalog.tables.list_on_branch(
            branch, request.namespace, after.decode(), size, contains, self._gate.reads_tables(context)
        )
        imported = self._calls.reads.imported(table.view for table in listed) if request.with_imports else ()
        shown = list(fitting(_listed(table, has_imports=table.view.raw_id in imported) for table in listed))
        is_last = len(listed) < size and len(shown) == len(listed)
        place = b"" if is_last else listed[len(shown) - 1].name.encode()
        return pb.ListTablesResponse(tables=shown, next_page_token=bound_token(place, *filters))

    def ListSchemas(self, request: pb.ListSchemasRequest, context: Context) -> pb.ListSchemasResponse:
        table, size = (
            self._calls.reads.get_table(table_id=wire.table_id(request.table_id)),
            page_size(request.page_size),
        )
        start = bound_start(request.page_token, "schemas", request.table_id)
        if start and not (start.isdigit() and len(start) <= 18):
            raise invalid("PAGE_TOKEN_INVALID")
        listed = self._calls.catalog.tables.list_schemas(table, int(start or b"0"), size)
        schemas = [
            pb.SchemaVersion(
                schema_version=meta.schema_version,
                version=version,
                columns=column_messages(meta.columns),
                primary_key=meta.primary_key,
            )
            for version, meta in listed
        ]
        shown = list(fitting(schemas))
        is_last = len(listed) < size and len(shown) == len(listed)
        place = b"" if is_last else str(shown[-1].schema_version).encode()
        return pb.ListSchemasResponse(
            schemas=shown,
            next_page_token=bound_token(place, "schemas", request.table_id),
        )

    def AlterTable(self, request: pb.AlterTableRequest, context: Context) -> pb.AlterTableResponse:
        alteration, dry = wire_catalog.alter(request), request.validate_only
        done = self._ask(lambda: self._calls.catalog.alter(alteration, validate_only=dry))
        return pb.AlterTableResponse(table=answers.table(done.table), version=done.version)

    def DropTable(self, request: pb.DropTableRequest, context: Context) -> pb.DropTableResponse:
        table_id = wire.table_id(request.table_id)
        dry = request.validate_only
        ended = self._ask(lambda: self._calls.catalog.drop(table_id, validate_only=dry))
        return pb.DropTableResponse(ended_transactions=ended)

    def UndropTable(self, request: pb.UndropTableRequest, context: Context) -> pb.UndropTableResponse:
        table_id = wire.table_id(request.table_id)
        table = self._ask(lambda: self._calls.catalog.undrop(table_id))
        return pb.UndropTableResponse(table=answers.table(table))

    def CreateNamespace(self, request: pb.CreateNamespaceRequest, context: Context) -> pb.CreateNamespaceResponse:
        definition, relaxed = wire_catalog.new_namespace(request), request.if_not_exists
        maker = self._gate.maker(context)
        namespace, created = self._ask(lambda: self._create_namespace(definition, maker, if_not_exists=relaxed))
        return pb.CreateNamespaceResponse(namespace=_namespace(namespace), created=created)

    def _create_namespace(self, definition: Namespace, maker: Maker, *, if_not_exists: bool) -> tuple[Namespace, bool]:
        """Create a namespace, with its admin if it is new. On the decider's thread."""
        namespaces = self._calls.catalog.namespaces
        if namespaces.is_known(definition.name):
            return namespaces.create(definition, if_not_exists=if_not_exists)
        own = maker.owning("")
        made, created = namespaces.create(definition, if_not_exists=if_not_exists)
        if not branch_of(definition.name):  # one of a branch gets its admin with the merge
            own(Place(namespace=made.name))
        return made, created

    def GetNamespace(self, request: pb.GetNamespaceRequest, context: Context) -> pb.GetNamespaceResponse:
        name = wire_catalog.branched_namespace_name(request.name)
        namespace = self._ask(lambda: self._calls.catalog.namespaces.get(name))
        return pb.GetNamespaceResponse(namespace=_namespace(namespace))

    def ListNamespaces(self, request: pb.ListNamespacesRequest, context: Context) -> pb.ListNamespacesResponse:
        size = page_size(request.page_size)
        filters = ("namespaces", request.branch) if request.branch else ("namespaces",)
        after = bound_start(request.page_token, *filters)
        if after and not _is_name(after):
            raise invalid("PAGE_TOKEN_INVALID")
        listing, sees = self._calls.catalog.namespaces.list_all, self._gate.sees_namespaces(context)

        def list_after(name: str, count: int) -> list[Namespace]:
            return self._ask(lambda: listing(request.branch, name, count))

        listed = _visible(list_after, after.decode(), size, None if sees is None else lambda each: sees(each.name))
        shown = list(fitting(map(_namespace, listed)))
        names = [each.name for each in shown]
        is_last = len(listed) < size and len(shown) == len(listed)
        place = b"" if is_last else names[-1].encode()
        return pb.ListNamespacesResponse(names=names, namespaces=shown, next_page_token=bound_token(place, *filters))

    def AlterNamespace(self, request: pb.AlterNamespaceRequest, context: Context) -> pb.AlterNamespaceResponse:
        name = wire_catalog.branched_namespace_name(request.name)
        updates, removals = wire_catalog.namespace_changes(request)
        namespaces = self._calls.catalog.namespaces
        altered, removed = self._ask(lambda: namespaces.alter(name, updates, removals))
        return pb.AlterNamespaceResponse(namespace=_namespace(altered), removed=removed)

    def DropNamespace(self, request: pb.DropNamespaceRequest, context: Context) -> pb.DropNamespaceResponse:
        name, dry = wire_catalog.branched_namespace_name(request.name), request.validate_only
        self._ask(lambda: self._calls.catalog.namespaces.drop(name, validate_only=dry))
        return pb.DropNamespaceResponse()

    def PutView(self, request: pb.PutViewRequest, context: Context) -> pb.PutViewResponse:
        definition, queries = wire_catalog.new_view(request), self._calls.catalog.queries
        mode = wire_catalog.mode(request.mode)
        wire.principal(request.principal)
        if mode is Mode.OR_REPLACE:
            view, created = self._ask(lambda: queries.replace(definition, must_exist=request.must_exist))
        else:
            relaxed = mode is Mode.IF_NOT_EXISTS
            view, created = self._ask(lambda: queries.create(definition, if_not_exists=relaxed))
        return pb.PutViewResponse(view=wire_catalog.view_message(view), created=created)

    def GetView(self, request: pb.GetViewRequest, context: Context) -> pb.GetViewResponse:
        name = wire.table_name(request.name)
        view = self._ask(lambda: self._calls.catalog.queries.get(name))
        return pb.GetViewResponse(view=wire_catalog.view_message(view))

    def ListViews(self, request: pb.ListViewsRequest, context: Context) -> pb.ListViewsResponse:
        size, namespace, branch = page_size(request.page_size), request.namespace, request.branch
        if namespace:
            wire_catalog.namespace_name(namespace)
            whole = on_branch(namespace, branch)
            namespace = self._ask(lambda: self._calls.catalog.namespaces.get(whole)).name
        filters = ("views", namespace, branch) if branch else ("views", namespace)
        after = bound_start(request.page_token, *filters)
        if after and not _is_name(after):
            raise invalid("PAGE_TOKEN_INVALID")
        listing, reads = self._calls.catalog.queries.list_all, self._gate.reads(context)

        def list_after(name: str, count: int) -> list[View]:
            return self._ask(lambda: listing(namespace, branch, name, count))

        listed = _visible(
            list_after, after.decode(), size, None if reads is None else lambda each: reads(each.name, "")
        )
        shown = list(fitting(map(wire_catalog.view_message, listed)))
        is_last = len(listed) < size and len(shown) == len(listed)
        place = b"" if is_last else shown[-1].name.encode()
        return pb.ListViewsResponse(views=shown, next_page_token=bound_token(place, *filters))

    def RenameView(self, request: pb.RenameViewRequest, context: Context) -> pb.RenameViewResponse:
        name, new_name = wire.table_name(request.name), wire.table_name(request.new_name)
        renamed = self._ask(lambda: self._calls.catalog.queries.rename(name, new_name))
        return pb.RenameViewResponse(view=wire_catalog.view_message(renamed))

    def DropView(self, request: pb.DropViewRequest, context: Context) -> pb.DropViewResponse:
        name = wire.table_name(request.name)
        return pb.DropViewResponse(dropped=self._ask(lambda: self._calls.catalog.queries.drop(name)))


def _visible(
    list_after: Callable[[str, int], list[Listed]], after: str, count: int, sees: Callable[[Listed], bool] | None
) -> list[Listed]:
    """The next ones that the caller may know of; fewer only at the end. So no token names any other one."""
    if sees is None:
        return list_after(after, count)
    visible: list[Listed] = []
    while len(visible) < count:
        listed = list_after(after, LISTED_AT_ONCE)
        visible += filter(sees, listed)
        if len(listed) < LISTED_AT_ONCE:
            break
        after = listed[-1].name
    return visible[:count]


def _is_name(raw: bytes) -> bool:
    return raw.isascii() and wire.TABLE_NAME.match(raw.decode()) is not None


def _is_place(kind: bytes, after: bytes) -> bool:
    return _is_name(after) if kind == LIVE else kind == DROPPED and len(after) == UUID_BYTES


def _namespace(namespace: Namespace) -> pb.Namespace:
    return pb.Namespace(name=namespace.name, properties=namespace.properties, create_time_us=namespace.create_time_us)


def _listed(listed: ListedTable, *, has_imports: bool) -> pb.Table:
    message = answers.table(listed.view, has_imports=has_imports)
    if not message.table_id:
        message.parent_table_id = listed.parent_id
        message.ClearField("definition")
    return message


def _dropped_table(dropped: Dropped) -> pb.Table:
    message = answers.table(dropped.table)
    message.drop_time_us, message.undrop_until_us = dropped.drop_us, dropped.until_us
    return message
