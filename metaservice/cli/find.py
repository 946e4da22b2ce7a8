"""Finds what a user means by what they type."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import Final

from metaservice.cli.failures import CommandError, did_you_mean, usage_failure
from metaservice.cli.output import Session, whole_id
from metaservice.client import LakeTXError, MetaClient, MetaServiceError
from metaservice.client.conditions import ConditionError, parse_condition
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2, transaction_pb2

GONE = ("TABLE_UNKNOWN", "TABLE_DROPPED", "TABLE_ID_OUTDATED")
TRANSACTIONS_MAX: Final = 10_000
TABLE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find_table(client: MetaClient, name_or_id: str) -> catalog_pb2.Table:
    if TABLE_ID.fullmatch(name_or_id):
        return client.get_table(table_id=name_or_id)
    return client.get_table(name_or_id)


def find_transaction(client: MetaClient, txn_id: str) -> transaction_pb2.Transaction:
    """Return a transaction by its id, or by a beginning that no other of the newest has."""
    newest = (transaction.txn_id for transaction in islice(client.list_transactions(), TRANSACTIONS_MAX))
    return client.get_transaction(whole_id(txn_id, newest, "transaction"))


def find_task(client: MetaClient, task_id: str) -> maintenance_pb2.MaintenanceTask:
    """Return it by its id, or by a beginning that no other has."""
    newest = sorted((task.task_id for task in client.list_tasks()), reverse=True)
    return client.get_task(whole_id(task_id, newest, "task"))


def find_pin(client: MetaClient, pin_id: str) -> str:
    """The id of a pin, by what no other begins with."""
    return whole_id(pin_id, sorted({pin.pin_id for pin in client.list_pins()}, reverse=True), "pin")


def list_namespaces(client: MetaClient) -> list[str]:
    return [namespace.name for namespace in client.list_namespaces()]


def read_condition(table: catalog_pb2.Table, text: str, *, option: str = "--where") -> common_pb2.Predicate:
    """Refuses by pointing at the place."""
    try:
        return parse_condition(text, table.columns)
    except ConditionError as error:
        raise refused_condition(error, option) from error


def refused_condition(error: ConditionError, option: str) -> CommandError:
    usage = error.pointed().replace("\n", "\n  ")
    return usage_failure(f"{option}: {error.message}", usage=usage)


def table_or_none(client: MetaClient, table_id: str) -> catalog_pb2.Table | None:
    """None where the table is gone."""
    try:
        return client.get_table(table_id=table_id)
    except MetaServiceError as error:
        if error.reason not in GONE:
            raise
        return None


class Tables:
    """Tables by id, each asked for once."""

    def __init__(self, client: MetaClient) -> None:
        self._client = client
        self._tables: dict[str, catalog_pb2.Table | None] = {}

    def __getitem__(self, table_id: str) -> catalog_pb2.Table | None:
        if table_id not in self._tables:
            self._tables[table_id] = table_or_none(self._client, table_id)
        return self._tables[table_id]

    def name(self, table_id: str) -> str:
        """The id stays where the table is gone."""
        table = self[table_id]
        return table.name if table is not None else table_id


def table_name(client: MetaClient, table_id: str) -> str:
    return Tables(client).name(table_id)


def suggest_name(session: Session, failure: CommandError) -> CommandError:
    """Add the nearest existing name to a refusal of a table's or namespace's name."""
    try:
        match failure.reason:
            case "TABLE_UNKNOWN" if name := failure.facts.get("name", ""):
                hint = did_you_mean(name, [table.name for table in session.client.list_tables()])
            case "NAMESPACE_UNKNOWN" if name := failure.facts.get("namespace", ""):
                near = did_you_mean(name, list_namespaces(session.client))
                hint = near or f"`laketx namespace create {name}` makes it"
            case _:
                return failure
    except LakeTXError:
        return failure
    return replace(failure, next_step=hint) if hint else failure
