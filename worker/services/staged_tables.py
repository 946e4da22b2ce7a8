"""Notes of tables that an Iceberg client may still make: it has their folder, and may have written files into it.

    <warehouse>/_laketx/staged/<history of the service>/<table id>

The catalog leaves a note before it names the folder to the client, and removes it when the table is made. What is left
after KEEP_S was given up: the service is made to drop a table of that id. From then on no commit can make it, and its
folder goes as that of any dropped table. If the table was made after all, the service says so, and only the note goes.

After a restore of the service from a backup, notes of the history before stay: their tables may have been made in the
part of it that was lost.
"""

from __future__ import annotations

import re
from typing import Final

from pyarrow import fs

from metaservice.client import AlreadyExistsError, BlockedError, MetaClient
from protos.laketx.v1 import catalog_pb2
from worker.files import warehouse as mark
from worker.files.storage import crosses_link, make_folder, storage
from worker.services import generated_files

KEEP_S: Final = generated_files.KEEP_S  # for which a client may take to write the files of a new table
NEW: Final = "_new_"  # begins the hidden name of a table until the commit of its rows
ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
DROPPED: Final = "TABLE_DROPPED"


class StagedTables:
    """The notes of one warehouse, in the service's present history."""

    def __init__(self, client: MetaClient, warehouse: str) -> None:
        self._client = client
        self._files, root = storage(warehouse.rstrip("/"))
        self._root = root.rstrip("/")
        self._folder = f"{self._root}/{mark.FOLDER}/staged/{client.get_warehouse().history_epoch}"

    def add(self, table_id: str, name: str) -> None:
        make_folder(self._files, self._folder)
        with self._files.open_output_stream(f"{self._folder}/{table_id}") as note:
            note.write(name.encode())

    def remove(self, table_id: str) -> None:
        """A missing note is no error."""
        path = f"{self._folder}/{table_id}"
        if self._files.get_file_info(path).type == fs.FileType.File:
            self._files.delete_file(path)

    def given_up(self, now_s: float) -> list[str]:
        """Return the ids of tables that were noted too long ago."""
        if crosses_link(self._files, self._root, self._folder):
            return []
        listed = self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        last_ns = (now_s - KEEP_S) * 1e9
        return sorted(
            info.base_name
            for info in listed
            if ID.match(info.base_name) and info.mtime_ns is not None and info.mtime_ns < last_ns
        )

    def end(self, table_id: str) -> bool:
        """Makes sure that no commit makes the table any more; returns whether it wasn't made before."""
        column = catalog_pb2.Column(name="id", type="bigint")
        table = catalog_pb2.Table(
            name=hidden_name("", table_id), columns=[column], properties={"data.retain.hours": "0"}
        )
        try:
            made = self._client.create_table(table, request_id=table_id)
            self._client.drop_table(made.table_id)
        except AlreadyExistsError:
            return False
        except BlockedError as error:
            if error.reason != DROPPED:
                raise
            return False
        return True


def hidden_name(name: str, table_id: str) -> str:
    """The name of a table until the commit of its rows."""
    namespace, dot, _ = name.rpartition(".")
    return f"{namespace}{dot}{NEW}{table_id.replace('-', '')}"
