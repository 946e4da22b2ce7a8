"""Writes without rows: TRUNCATE and RESTORE, of the whole table or of named partitions. They need no Spark."""

from __future__ import annotations

from protos.laketx.v1 import common_pb2
from worker.commit.scopes import Partitions, scope_without_rows
from worker.commit.transaction import Write
from worker.connection.table_view import TableView


def plan_truncate(table: TableView, where: Partitions) -> Write:
    scope = scope_without_rows(table, where, "a truncate")
    return Write(table, common_pb2.OPERATION_TRUNCATE, scope=scope)


def plan_restore(table: TableView, version: int, where: Partitions) -> Write:
    scope = scope_without_rows(table, where, "a restore")
    return Write(table, common_pb2.OPERATION_RESTORE, scope=scope, restore_version=version)
