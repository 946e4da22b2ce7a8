"""Every kind of call, in one story. Runs with the packages of any release against a service of any release.

python story.py FOLDER_OF_THE_RELEASE ADDRESS tell NAME     makes a table, and prints what it saw
python story.py FOLDER_OF_THE_RELEASE ADDRESS read NAME     reads that table again, and prints what it sees
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import metaservice
from metaservice.client import ConflictError, MetaClient, MetaServiceError, add_column
from metaservice.client.maintenance import claim_of, intent_of
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from protos.laketx.v1 import transaction_pb2 as wire

INSERT, OVERWRITE = common_pb2.OPERATION_INSERT, common_pb2.OPERATION_OVERWRITE
UPDATE, DELETE, RESTORE = common_pb2.OPERATION_UPDATE, common_pb2.OPERATION_DELETE, common_pb2.OPERATION_RESTORE
MINOR = common_pb2.OPERATION_MINOR_COMPACT
PLAIN, DELTA = common_pb2.FILE_KIND_UNSPECIFIED, common_pb2.FILE_KIND_DELTA
LONG_MS = 3_600_000


def day(value: str) -> common_pb2.Partition:
    return common_pb2.Partition(values=[common_pb2.PartitionValue(column="day", value=common_pb2.Value(text=value))])


def file_of(txn: Any, name: str, kind: Any = PLAIN, rows: int = 10) -> common_pb2.DataFile:
    txn_id = txn if isinstance(txn, str) else txn.txn_id
    stats = [common_pb2.ColumnStats(column_id=1, min=common_pb2.Value(integer=1), max=common_pb2.Value(integer=9))]
    return common_pb2.DataFile(
        path=f"{txn_id}/{name}", partition=day("1"), kind=kind, rows=rows, bytes=1000, stats=stats
    )


class Teller:
    """Tells the story; `seen` is the same whoever tells it to whom."""

    def __init__(self, client: MetaClient, name: str) -> None:
        self.client, self.name = client, name
        self.seen: dict[str, Any] = {}

    def table(self, suffix: str, *, keyed: bool = False, profile: str = "", retain: str = "") -> str:
        columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
        wanted = catalog_pb2.Table(
            name=f"{self.name}_{suffix}",
            columns=columns,
            partition_columns=["day"],
            properties={"data.retain.hours": retain} if retain else {},
            profile=profile,
        )
        if keyed:
            wanted.primary_key.append("id")
            wanted.buckets = 2
            wanted.properties["key.scope"] = "partition"
        return self.client.create_table(wanted).table_id

    def begin(self, table_id: str, operation: Any) -> Any:
        return self.client.begin([wire.TableIntent(table_id=table_id, operation=operation)])

    def tell(self) -> dict[str, Any]:
        self.writes()
        self.keyed()
        self.marks()
        self.tasks()
        self.purge()
        self.catalog()
        self.operators()
        return self.seen

    def writes(self) -> None:
        client, table_id = self.client, self.table("plain")
        with self.begin(table_id, INSERT) as txn:
            txn.register(table_id, [file_of(txn, "a"), file_of(txn, "b")])
            explained = txn.explain([common_pb2.Change(table_id=table_id)])
            self.seen["explained"] = explained.WhichOneof("outcome")
            self.seen["renewed"] = client.renew(txn.txn_id).HasField("doomed")
            committed = txn.commit([common_pb2.Change(table_id=table_id)])
        self.seen["committed"] = [one.version for one in committed.tables]
        appended = client.append(table_id, [], app_versions=[common_pb2.AppVersion(app_id="app", version=7)])
        self.seen["appended"] = [one.version for one in appended.tables]
        batch = [wire.AppendRequest(table_id=table_id) for _ in range(2)]
        self.seen["batch"] = [type(one).__name__ for one in client.commit_batch(batch)]
        aborted = self.begin(table_id, INSERT)
        aborted.abort("no more")
        self.seen["aborted"] = client.get_transaction(aborted.txn_id).state
        hiding = self.begin(table_id, DELETE)
        paths = [entry.file.path for entry in client.list_files(table_id)]
        hidden = common_pb2.DeleteSet(
            path=f"{hiding.txn_id}/d", partition=day("1"), rows=2, row_id_min=1, row_id_max=2, touches=[min(paths)]
        )
        hiding.commit([common_pb2.Change(table_id=table_id, delete_sets=[hidden])])
        self.seen["conflict"] = self.lost_race()
        restore = self.begin(table_id, RESTORE)
        restore.commit([common_pb2.Change(table_id=table_id, scope=common_pb2.Scope(all=True), restore_version=1)])
        self.seen["transactions"] = len(list(client.list_transactions(table_id=table_id)))

    def lost_race(self) -> str:
        table_id = self.table("races", profile="delta_serializable")
        loser, winner = self.begin(table_id, DELETE), self.begin(table_id, INSERT)
        winner.commit([common_pb2.Change(table_id=table_id, files=[file_of(winner, "w")])])
        everything = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))
        hidden = common_pb2.DeleteSet(path=f"{loser.txn_id}/d", partition=day("1"), rows=1, row_id_min=1, row_id_max=1)
        try:
            loser.commit([common_pb2.Change(table_id=table_id, reads=[everything], delete_sets=[hidden])])
        except ConflictError as lost:
            return common_pb2.ConflictRule.Name(lost.conflict.rule)
        return "none"

    def keyed(self) -> None:
        client, table_id = self.client, self.table("keyed", keyed=True)
        for name in ("u1", "u2"):
            upsert = self.begin(table_id, INSERT)
            upsert.commit([common_pb2.Change(table_id=table_id, files=[file_of(upsert, name, DELTA)])])
        delete = self.begin(table_id, DELETE)
        gone = file_of(delete, "d", DELTA, rows=3)
        gone.tombstones = 3
        delete.commit([common_pb2.Change(table_id=table_id, files=[gone])])
        self.seen["keyed"] = client.resolve_version(table_id).version

    def marks(self) -> None:
        client, table_id = self.client, self.id_of("plain")
        tag = client.create_tag(table_id, "gold", version=1, comment="for good")
        cursor = client.create_cursor(table_id, "pipe", version=1, keep_ms=LONG_MS).cursor
        moved = client.advance_cursor(table_id, "pipe", cursor.version, 3)
        client.create_cursor(table_id, "brief")
        dropped = client.drop_cursor(table_id, "brief"), client.drop_tag(table_id, "none")
        pin = client.pin([read_pb2.TableVersion(table_id=table_id, version=1)])
        granted = client.renew_pin(pin.pin_id)
        pins = [one.version for one in client.list_pins() if one.table_id == table_id]
        client.unpin(pin.pin_id)
        self.seen["marks"] = [tag.version, moved.version, *dropped, granted > 0, pins]
        arrived: list[int] = []
        done = threading.Event()

        def watch() -> None:
            for version in client.watch(table_id, after_version=1):
                arrived.append(version.version)
                if len(arrived) == 3:
                    break
            done.set()

        threading.Thread(target=watch, daemon=True).start()
        assert done.wait(30), "the watch brought too little"
        self.seen["watched"] = arrived

    def tasks(self) -> None:
        client, table_id = self.client, self.table("work")
        for name in ("a", "b", "c"):
            txn = self.begin(table_id, INSERT)
            txn.commit([common_pb2.Change(table_id=table_id, files=[file_of(txn, name)])])
        (asked,) = client.request_tasks(table_id, MINOR).tasks
        found = client.claim_task(table_ids=[table_id])
        assert found is not None, "there is no task"
        task, lease_ms = found
        assert task.task_id == asked.task_id
        assert lease_ms > 0
        cancelled = client.renew_task(task.task_id, task.fence, progress=0.5).cancelled
        txn = client.begin([intent_of(task)], task=claim_of(task))
        (group,) = task.groups
        output = file_of(txn, "merged", rows=group.rows)
        made = common_pb2.CompactionGroup(
            partition=group.partition, inputs=[one.file.path for one in group.inputs], outputs=[output.path]
        )
        txn.commit([common_pb2.Change(table_id=table_id, files=[output], groups=[made])])
        ended = client.finish_task(task.task_id, task.fence, txn_id=txn.txn_id)
        self.seen["task"] = [cancelled, ended.state, len(group.inputs), client.get_task(task.task_id).state]
        self.seen["compacted"] = len(list(client.list_files(table_id)))

    def purge(self) -> None:
        client, table_id = self.client, self.table("dying", retain="0")
        overwrite = common_pb2.Change(table_id=table_id, scope=common_pb2.Scope(all=True))
        for name in ("a", "b"):
            txn = self.begin(table_id, OVERWRITE)
            overwrite.ClearField("files")
            overwrite.files.append(file_of(txn, name))
            txn.commit([overwrite])
        dead: list[str] = []
        for _ in range(200):
            dead = list(client.list_purgeable(table_id))
            if dead:
                break
            threading.Event().wait(0.1)
        client.confirm_purged(table_id, dead)
        checked = client.check_paths(table_id, dead)
        left = list(client.list_purgeable(table_id))
        self.seen["purged"] = [[path.split("/")[1] for path in dead], left, list(checked.purgeable)]
        self.seen["sweepable"] = all(page.IsInitialized() for page in client.list_sweepable())

    def catalog(self) -> None:
        client, table_id = self.client, self.id_of("plain")
        column = add_column("note", "string")
        self.seen["altered"] = [one.name for one in client.alter_columns(table_id, column).columns]
        self.seen["schemas"] = len(list(client.list_schemas(table_id)))
        lost = self.table("lost")
        client.drop_table(lost)
        self.seen["undropped"] = client.undrop_table(lost).name
        client.drop_table(lost)
        client.create_namespace(f"{self.name}_space", if_not_exists=True)
        client.drop_namespace(f"{self.name}_space")
        self.seen["tables"] = sorted(one.name for one in client.list_tables() if one.name.startswith(self.name))
        try:
            client.get_table(f"{self.name}_nowhere")
        except MetaServiceError as refused:
            self.seen["refused"] = [refused.reason, refused.kind.name]

    def operators(self) -> None:
        status = self.client.get_status()
        self.seen["open"] = [status.tables > 0, bool(status.history_epoch), status.read_only_reason]
        self.seen["problems"] = [line for part in self.client.check() for line in part.problems]

    def read(self) -> dict[str, Any]:
        """What is left of the story, by itself."""
        for suffix in ("plain", "keyed", "work"):
            table_id = self.id_of(suffix)
            self.seen[suffix] = [self.version_of(table_id, one.version) for one in self.client.list_versions(table_id)]
            self.seen[f"{suffix}_pruned"] = self.pruned(table_id)
            self.seen[f"{suffix}_increments"] = [
                [part.version.version, len(part.added), len(part.removed)]
                for part in self.client.plan_changes(table_id, 0)
            ]
        plain = self.id_of("plain")
        tagged = self.client.resolve_version(plain, tag="gold").version
        cursors = [(one.name, one.version) for one in self.client.list_cursors(plain)]
        self.seen["marks"] = [tagged, cursors]
        self.seen["columns"] = [(one.name, one.type) for one in self.client.get_table(f"{self.name}_plain").columns]
        self.seen["problems"] = [line for part in self.client.check() for line in part.problems]
        return self.seen

    def version_of(self, table_id: str, version: int) -> list[Any]:
        parts = list(self.client.plan_scan(table_id, version=version))
        entries = [entry for part in parts for entry in part.entries]
        listed = list(self.client.list_files(table_id, version=version))
        return [version, sorted(entry.SerializeToString(deterministic=True).hex() for entry in entries), len(listed)]

    def pruned(self, table_id: str) -> list[int]:
        """How many entries of the head are left by conditions inside and outside of the bounds."""
        counts = []
        for number in (5, 50):
            condition = common_pb2.Compare(
                column="id", comparison=common_pb2.COMPARISON_EQUAL, value=common_pb2.Value(integer=number)
            )
            found = self.client.plan_scan(table_id, predicate=common_pb2.Predicate(compare=condition))
            counts.append(sum(len(part.entries) for part in found))
        return counts

    def id_of(self, suffix: str) -> str:
        return self.client.get_table(f"{self.name}_{suffix}").table_id


def main() -> None:
    folder, address, what, name = sys.argv[1:]
    assert Path(metaservice.__file__).is_relative_to(folder), f"{metaservice.__file__} is not of {folder}"
    with MetaClient(address, principal="ann", client_name="story") as client:
        teller = Teller(client, name)
        print(json.dumps(teller.tell() if what == "tell" else teller.read()))


if __name__ == "__main__":
    main()
