"""Commit requests of Iceberg's clients, by the REST catalog's specification: requirements and updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from worker.base.errors import InputError

MAIN: Final = "main"
FORMAT_MIN: Final = 2
APPEND: Final = "append"
JAVA: Final = "iceberg-version"  # in the summaries of Iceberg's Java library
CHANGES: Final = frozenset({"delete", "overwrite"})
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot that appends rows, or also removes rows."""

    snapshot_id: int
    time_ms: int
    manifest_list: str
    schema_id: int | None
    added_files: int | None  # as its summary says
    parent_id: int | None = None
    is_append: bool = True
    by_java: bool = False  # Iceberg's Java library made it


@dataclass(slots=True)
class CommitRequest:
    """A request to commit changes, or to create a table."""

    requirements: Sequence[Json] = ()
    snapshots: list[NewSnapshot] = field(default_factory=list)
    schemas: list[Json] = field(default_factory=list)
    specs: list[Json] = field(default_factory=list)
    orders: list[Json] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    format: int = 0
    table_id: str = ""
    location: str = ""
    main: int | None = None  # the snapshot that shall be the table's
    schema_id: int | None = None  # a schema of the table that shall be the current one, where the commit adds none
    replaces: bool = False  # the table gets a new definition, and loses its rows
    refusal: InputError | None = None  # of snapshots that can't be committed

    @property
    def is_new(self) -> bool:
        """Whether the request creates a table."""
        return any(requirement.get("type") == "assert-create" for requirement in self.requirements)

    @property
    def appends(self) -> bool:
        """Whether all snapshots of the request are declared as appends."""
        return all(snapshot.is_append for snapshot in self.snapshots)

    @property
    def appends_unchecked(self) -> bool:
        """Whether pyiceberg would retry the commit without checking the rows that it was computed from.

        It checks deletes and overwrites, and one append that comes with them. Other appends are plain ones, or the new
        rows of an upsert. Iceberg's Java library loads the table before each try, so the time of that load doesn't
        show what it read.
        """
        count = sum(snapshot.is_append for snapshot in self.snapshots)
        return count > (not self.appends) and not any(snapshot.by_java for snapshot in self.snapshots)

    @property
    def schema(self) -> Json | None:
        return self.schemas[-1] if self.schemas else None


def read_commit(body: Any) -> CommitRequest:
    """Read a request. Refuse what no transaction can do, except snapshots: the caller cleans up their files first."""
    try:
        request = CommitRequest(requirements=list(body.get("requirements") or ()))
        for update in body.get("updates") or ():
            take = UPDATES.get(update["action"])
            if take is None:
                raise refused(f"an update of the kind {update['action']} is not supported")
            take(request, update)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError("ICEBERG_REQUEST", f"the request is not as the specification has it: {error!r}") from error
    if request.snapshots and request.main != request.snapshots[-1].snapshot_id:
        raise refused("a snapshot is committed to the branch main, which is the only one")
    if not request.snapshots and request.main is not None:
        raise refused("main can't be set to an older snapshot: CALL lake.system.restore, or Table.restore of LakeTX")
    return request


def refused(why: str) -> InputError:
    return InputError("ICEBERG_WRITE", f"{why}; nothing was changed")


# -- updates -----------------------------------------------------------------------------------------------------------


def _add_snapshot(request: CommitRequest, update: Json) -> None:
    snapshot = update["snapshot"]
    summary = snapshot.get("summary") or {}
    operation, count = summary.get("operation"), summary.get("added-data-files")
    if operation != APPEND and operation not in CHANGES:
        request.refusal = refused(
            f"a snapshot with the operation {operation} can't be committed: Iceberg's clients append, delete and "
            "overwrite rows here; compact the table with LakeTX"
        )
    if "manifest-list" not in snapshot:
        raise refused("the snapshot names its manifests one by one, as format 1 has it")
    request.snapshots.append(
        NewSnapshot(
            int(snapshot["snapshot-id"]),
            int(snapshot["timestamp-ms"]),
            snapshot["manifest-list"],
            snapshot.get("schema-id"),
            None if count is None else int(count),
            snapshot.get("parent-snapshot-id"),
            operation == APPEND,
            JAVA in summary,
        )
    )


def _set_ref(request: CommitRequest, update: Json) -> None:
    if update["ref-name"] != MAIN or update["type"] != "branch":
        raise refused(f"{update['ref-name']} can't be set: tables have no branches but main, and LakeTX makes tags")
    request.main = int(update["snapshot-id"])


def _remove_ref(request: CommitRequest, update: Json) -> None:
    """Note a replacement: a client that replaces a table removes `main` first."""
    if update["ref-name"] != MAIN or request.snapshots:
        raise refused(f"{update['ref-name']} can't be removed: tables have no branches but main, and LakeTX drops tags")
    request.replaces = True


def _set_schema(request: CommitRequest, update: Json) -> None:
    number = int(update["schema-id"])
    if not request.schemas or number not in (-1, request.schemas[-1].get("schema-id")):
        request.schema_id = number


def _set_default(
    what: str, listed: Callable[[CommitRequest], Sequence[Json]], name: str
) -> Callable[[CommitRequest, Json], None]:
    def check(request: CommitRequest, update: Json) -> None:
        number, added = int(update[name]), listed(request)
        if number not in (-1, 0) and (not added or number != added[-1].get(name)):
            raise refused(f"the {what} of a table can't be changed")

    return check


def _set_format(request: CommitRequest, update: Json) -> None:
    request.format = int(update["format-version"])
    if request.format < FORMAT_MIN:
        raise refused(f"a table can't have format {request.format}: tables are shown in formats 2 and 3")


def _set_uuid(request: CommitRequest, update: Json) -> None:
    request.table_id = str(update["uuid"]).lower()


def _set_location(request: CommitRequest, update: Json) -> None:
    request.location = str(update["location"]).rstrip("/")


UPDATES: Final[Mapping[str, Callable[[CommitRequest, Json], None]]] = MappingProxyType(
    {
        "assign-uuid": _set_uuid,
        "upgrade-format-version": _set_format,
        "add-schema": lambda request, update: request.schemas.append(update["schema"]),
        "set-current-schema": _set_schema,
        "add-spec": lambda request, update: request.specs.append(update["spec"]),
        "set-default-spec": _set_default("partition spec", lambda request: request.specs, "spec-id"),
        "add-sort-order": lambda request, update: request.orders.append(update["sort-order"]),
        "set-default-sort-order": _set_default("sort order", lambda request: request.orders, "sort-order-id"),
        "add-snapshot": _add_snapshot,
        "set-snapshot-ref": _set_ref,
        "remove-snapshot-ref": _remove_ref,
        "set-location": _set_location,
        "set-properties": lambda request, update: request.properties.update(update["updates"]),
        "remove-properties": lambda request, update: request.removed.extend(update["removals"]),
    }
)
