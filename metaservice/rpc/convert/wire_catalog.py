"""The catalog's requests, checked and in core's types."""

from __future__ import annotations

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.table.branches import AT, BRANCH_NAME, branch_of, off_branch
from metaservice.core.table.foreign_properties import translated
from metaservice.core.table.meta import Namespace, Profile, TableMeta, View
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.properties import check_user_property
from metaservice.rpc.convert import wire, wire_changes
from metaservice.rpc.convert.wire_schema import first_schema
from metaservice.service.commit.requests import Alter
from metaservice.service.table.catalog import Mode
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

MODES = {0: Mode.CREATE, 1: Mode.IF_NOT_EXISTS, 2: Mode.OR_REPLACE}


def create_mode(message: catalog_pb2.CreateTableRequest) -> Mode:
    create = mode(message.mode)
    if create is Mode.OR_REPLACE:
        wire.txn_id(message.request_id)
    return create


def mode(number: int) -> Mode:
    create = MODES.get(number)
    if create is None:
        raise invalid("CREATE_MODE_INVALID", mode=number)
    return create


def alter(message: catalog_pb2.AlterTableRequest) -> Alter:
    change = common_pb2.Change(table_id=message.table_id, alteration=message.alteration)
    as_commit = transaction_pb2.CommitTransactionRequest(txn_id=message.txn_id, changes=[change])
    return Alter(
        txn_id=wire.txn_id(message.txn_id),
        table_id=wire.table_id(message.table_id),
        alteration=wire_changes.alteration(message.alteration),
        principal=wire.principal(message.principal),
        message=wire.text(message.commit_message, "commit_message"),
        digest=wire.digest(message),
        commit_digest=wire.digest(as_commit),
    )


def new_table(message: catalog_pb2.CreateTableRequest) -> TableMeta:
    return definition(message.table, message.request_id, wire.digest(message).hex())


def definition(table: catalog_pb2.Table, table_id: str, digest: str = "") -> TableMeta:
    """A table as a client defines it."""
    wire.table_name(table.name)
    if table.primary_key and not 1 <= table.buckets <= limits.BUCKETS_MAX:
        raise invalid("BUCKETS_INVALID", buckets=table.buckets, most=limits.BUCKETS_MAX)
    if not table.primary_key and table.buckets:
        raise invalid("BUCKETS_INVALID", "an append table has no buckets: leave them out", buckets=table.buckets)
    foreign = translated(table.properties)
    bare = TableMeta(
        table_id=wire.table_id(table_id),
        name=table.name,
        partitioning=Partitioning(()),
        primary_key=(),
        buckets=table.buckets,
        profile=wire.one_profile(table.profile, foreign.profile) or Profile.MAXCOMPUTE,
        schema_version=0,
        properties=wire.table_properties(foreign.properties),
        features=frozenset(wire.features([*table.features, *foreign.features])),
        comment=wire.text(table.comment, "comment"),
        columns=(),
        create_time_us=0,
        digest=digest,
    )
    return bare.with_schema(first_schema(table))


def new_namespace(message: catalog_pb2.CreateNamespaceRequest) -> Namespace:
    for name in message.properties:
        check_user_property(name)
    properties = wire.properties(message.properties)
    if not message.request_id:
        return Namespace(branched_namespace_name(message.name), properties)
    wire.request_id(message.request_id)
    return Namespace(branched_namespace_name(message.name), properties, digest=wire.digest(message))


def namespace_changes(message: catalog_pb2.AlterNamespaceRequest) -> tuple[dict[str, str], list[str]]:
    """The properties to set, and those to remove."""
    updates, removals = wire.properties(message.set_properties), list(dict.fromkeys(message.remove_properties))
    if set(updates) & set(removals):
        raise invalid("ALTERATION_INVALID", "a property is both set and removed: choose one")
    for name in updates:
        check_user_property(name)
    return updates, list(wire.properties(dict.fromkeys(removals, "")))


def new_view(message: catalog_pb2.PutViewRequest) -> View:
    wire.request_id(message.request_id)
    view = message.view
    name = wire.table_name(view.name)
    if not view.text or not view.columns:
        raise invalid("VIEW_INVALID", "a view has a query and at least one column: give both", view=name)
    kept = catalog_pb2.View()
    kept.CopyFrom(view)
    kept.principal.CopyFrom(message.principal)
    for field in ("name", "create_time_us", "replace_time_us"):
        kept.ClearField(field)
    size = kept.ByteSize()
    if size > limits.VIEW_BYTES_MAX:
        raise invalid("VIEW_TOO_LARGE", view=name, bytes=size, most=limits.VIEW_BYTES_MAX)
    return View(name, kept.SerializeToString(), digest=wire.digest(message))


def view_message(view: View) -> catalog_pb2.View:
    message = catalog_pb2.View.FromString(view.payload)
    message.name, message.create_time_us, message.replace_time_us = view.name, view.create_time_us, view.replace_time_us
    return message


def namespace_name(name: str) -> str:
    if not wire.NAME.match(name):
        raise invalid("NAME_INVALID", "use letters, digits and _", name=name[:128])
    return name


def branched_namespace_name(name: str) -> str:
    """One that may say a branch."""
    namespace_name(off_branch(name))
    if AT in name and not BRANCH_NAME.match(branch_of(name)):
        raise invalid("BRANCH_NAME_INVALID", branch=branch_of(name)[:64])
    return name
