"""What a commit of Iceberg's clients asks for, by the REST catalog's specification: requirements and updates."""

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
    """A snapshot that appends rows, or takes rows away too."""

    snapshot_id: int
    time_ms: int
    manifest_list: str
    schema_id: int | None
    added_files: int | None  # as its summary says
    parent_id: int | None = None
    is_append: bool = True
    by_java: bool = False  # Iceberg's Java library made it


@dataclass(slots=True)
class Wanted:
    """A commit, or a new table."""

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
        """Whether it makes a table."""
        return any(one.get("type") == "assert-create" for one in self.requirements)

    @property
    def appends(self) -> bool:
        """Whether its snapshots say that they append rows, and do nothing else."""
        return all(one.is_append for one in self.snapshots)

    @property
    def appends_unchecked(self) -> bool:
        """Whether pyiceberg would commit its rows again without a look at what they were computed from.

        It looks where it deletes or overwrites, and takes the rows of one append along with that. Others are plain
        appends, or the new rows of an upsert. Iceberg's Java library loads the table before each try: when that was
        tells nothing of what it read.
        """
        count = sum(one.is_append for one in self.snapshots)
        return count > (not self.appends) and not any(one.by_java for one in self.snapshots)

    @property
    def schema(self) -> Json | None:
        return self.schemas[-1] if self.schemas else None


def read_commit(body: Any) -> Wanted:
    """Refuses what no transaction here could say; snapshots are refused by who knows what files they leave."""
    try:
        wanted = Wanted(requirements=list(body.get("requirements") or ()))
        for update in body.get("updates") or ():
            take = UPDATES.get(update["action"])
            if take is None:
                raise refused(f"an update of the kind {update['action']} is not supported")
            take(wanted, update)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError("ICEBERG_REQUEST", f"the request is not as the specification has it: {error!r}") from error
    if wanted.snapshots and wanted.main != wanted.snapshots[-1].snapshot_id:
        raise refused("a snapshot is committed to the branch main, which is the only one")
    if not wanted.snapshots and wanted.main is not None:
        raise refused("main can't be set to an older snapshot: CALL lake.system.restore, or Table.restore of LakeTX")
    return wanted


def refused(why: str) -> InputError:
    return InputError("ICEBERG_WRITE", f"{why}; nothing was changed")


# -- updates -----------------------------------------------------------------------------------------------------------


def _add_snapshot(wanted: Wanted, update: Json) -> None:
    one = update["snapshot"]
    summary = one.get("summary") or {}
    operation, count = summary.get("operation"), summary.get("added-data-files")
    if operation != APPEND and operation not in CHANGES:
        wanted.refusal = refused(
            f"a snapshot with the operation {operation} can't be committed: Iceberg's clients append, delete and "
            "overwrite rows here; compact the table with LakeTX"
        )
    if "manifest-list" not in one:
        raise refused("the snapshot names its manifests one by one, as format 1 has it")
    wanted.snapshots.append(
        NewSnapshot(
            int(one["snapshot-id"]),
            int(one["timestamp-ms"]),
            one["manifest-list"],
            one.get("schema-id"),
            None if count is None else int(count),
            one.get("parent-snapshot-id"),
            operation == APPEND,
            JAVA in summary,
        )
    )


def _set_ref(wanted: Wanted, update: Json) -> None:
    if update["ref-name"] != MAIN or update["type"] != "branch":
        raise refused(f"{update['ref-name']} can't be set: tables have no branches but main, and LakeTX makes tags")
    wanted.main = int(update["snapshot-id"])


def _remove_ref(wanted: Wanted, update: Json) -> None:
    """A client that replaces a table removes `main` first."""
    if update["ref-name"] != MAIN or wanted.snapshots:
        raise refused(f"{update['ref-name']} can't be removed: tables have no branches but main, and LakeTX drops tags")
    wanted.replaces = True


def _set_schema(wanted: Wanted, update: Json) -> None:
    number = int(update["schema-id"])
    if not wanted.schemas or number not in (-1, wanted.schemas[-1].get("schema-id")):
        wanted.schema_id = number


def _set_default(what: str, listed: Callable[[Wanted], Sequence[Json]], name: str) -> Callable[[Wanted, Json], None]:
    def check(wanted: Wanted, update: Json) -> None:
        number, added = int(update[name]), listed(wanted)
        if number not in (-1, 0) and (not added or number != added[-1].get(name)):
            raise refused(f"the {what} of a table can't be changed")

    return check


def _set_format(wanted: Wanted, update: Json) -> None:
    wanted.format = int(update["format-version"])
    if wanted.format < FORMAT_MIN:
        raise refused(f"a table can't have format {wanted.format}: tables are shown in formats 2 and 3")


def _set_uuid(wanted: Wanted, update: Json) -> None:
    wanted.table_id = str(update["uuid"]).lower()


def _set_location(wanted: Wanted, update: Json) -> None:
    wanted.location = str(update["location"]).rstrip("/")


UPDATES: Final[Mapping[str, Callable[[Wanted, Json], None]]] = MappingProxyType(
    {
        "assign-uuid": _set_uuid,
        "upgrade-format-version": _set_format,
        "add-schema": lambda wanted, update: wanted.schemas.append(update["schema"]),
        "set-current-schema": _set_schema,
        "add-spec": lambda wanted, update: wanted.specs.append(update["spec"]),
        "set-default-spec": _set_default("partition spec", lambda wanted: wanted.specs, "spec-id"),
        "add-sort-order": lambda wanted, update: wanted.orders.append(update["sort-order"]),
        "set-default-sort-order": _set_default("sort order", lambda wanted: wanted.orders, "sort-order-id"),
        "add-snapshot": _add_snapshot,
        "set-snapshot-ref": _set_ref,
        "remove-snapshot-ref": _remove_ref,
        "set-location": _set_location,
        "set-properties": lambda wanted, update: wanted.properties.update(update["updates"]),
        "remove-properties": lambda wanted, update: wanted.removed.extend(update["removals"]),
    }
)
