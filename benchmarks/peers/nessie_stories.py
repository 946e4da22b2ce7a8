"""Nessie on the stories of `benchmarks/branch_stories.py`, in the peers' environment: what its merge makes of each.

`python -m benchmarks.peers.nessie_stories ADDRESS FOLDER STORIES` prints for each story, given as JSON, 1 if the merge
was done, and how many rows `main` has then. pyiceberg writes the tables; each new metadata file is committed to Nessie
as Iceberg's catalog for Nessie does, and Nessie merges.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.table import StaticTable  # type: ignore[import-not-found, unused-ignore]
from pyiceberg.types import StringType  # type: ignore[import-not-found, unused-ignore]

ROWS = [1, 2]
NAMESPACE = "shop"


class Nessie:
    """Tables on branches, by Nessie's API."""

    def __init__(self, address: str, folder: Path) -> None:
        self._trees = f"{address}/api/v2/trees"
        self._folder = folder
        self._files = SqlCatalog("files", uri=f"sqlite:///{folder}/files.db", warehouse=f"file://{folder}")
        self._files.create_namespace(NAMESPACE)
        self._copies = 0

    def call(self, method: str, path: str, sent: object = None) -> dict[str, Any]:
        body = None if sent is None else json.dumps(sent).encode()
        request = urllib.request.Request(self._trees + path, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
        return found

    def head(self, branch: str) -> str:
        return str(self.call("GET", f"/{branch}")["reference"]["hash"])

    def branch(self, name: str, parent: str) -> None:
        source = {"type": "BRANCH", "name": parent, "hash": self.head(parent)}
        self.call("POST", f"?name={name}&type=BRANCH", source)

    def put(self, branch: str, elements: list[str], content: dict[str, Any]) -> None:
        operations = [{"type": "PUT", "key": {"elements": elements}, "content": content}]
        sent = {"commitMeta": {"message": "a story"}, "operations": operations}
        self.call("POST", f"/{branch}@{self.head(branch)}/history/commit", sent)

    def find(self, branch: str, table: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/{branch}/contents/{NAMESPACE}.{table}")["content"]
        return found

    def commit(self, branch: str, table: str, files: Any, known: dict[str, Any]) -> None:
        """`files`: the table as pyiceberg has it."""
        made = {
            "type": "ICEBERG_TABLE",
            "metadataLocation": files.metadata_location,
            "snapshotId": files.metadata.current_snapshot_id or -1,
            "schemaId": files.metadata.current_schema_id,
            "specId": 0,
            "sortOrderId": 0,
        }
        self.put(branch, [NAMESPACE, table], known | made)

    def create(self, branch: str, table: str) -> None:
        files = self._files.create_table(f"{NAMESPACE}.{table}_{branch}", schema=pa.schema([("id", pa.int64())]))
        files.append(pa.table({"id": ROWS}))
        self.commit(branch, table, files, {})

    def work(self, branch: str, table: str, what: str) -> None:
        """One commit to a table as it is on the branch."""
        known = self.find(branch, table)
        self._copies += 1
        files = self._files.register_table(f"{NAMESPACE}.copy_{self._copies}", known["metadataLocation"])
        if what == "append":
            files.append(pa.table({"id": [10 + self._copies]}))
        elif what == "delete":
            files.delete("id = 1")
        elif what == "compact":
            files.overwrite(files.scan().to_arrow())
        else:
            with files.update_schema() as update:
                update.add_column("note", StringType())
        self.commit(branch, table, files, known)

    def merge(self, branch: str, into: str) -> bool:
        sent = {"fromRefName": branch, "fromHash": self.head(branch)}
        try:
            self.call("POST", f"/{into}@{self.head(into)}/history/merge", sent)
        except urllib.error.HTTPError as refusal:
            if json.loads(refusal.read())["errorCode"] != "REFERENCE_CONFLICT":
                raise
            return False
        return True

    def rows(self, branch: str, tables: list[str]) -> int:
        found = [StaticTable.from_metadata(self.find(branch, table)["metadataLocation"]) for table in tables]
        return sum(table.scan().to_arrow().num_rows for table in found)


def main(address: str, folder: Path, stories: list[dict[str, Any]]) -> None:
    nessie, said = Nessie(address, folder), {}
    for number, story in enumerate(stories):
        line, branch = f"line{number}", f"branch{number}"  # a main of its own
        nessie.branch(line, "main")
        nessie.put(line, [NAMESPACE], {"type": "NAMESPACE", "elements": [NAMESPACE]})
        for table in story["tables"]:
            nessie.create(line, table)
        nessie.branch(branch, line)
        for table, what in story["branch"]:
            nessie.work(branch, table, what)
        for table, what in story["main"]:
            nessie.work(line, table, what)
        merged = nessie.merge(branch, line)
        said[story["name"]] = [int(merged), nessie.rows(line, story["tables"])]
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
