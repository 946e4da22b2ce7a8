"""Spark with Iceberg's own jar writes tables of LakeTX through the REST catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from laketx import Lake, Table
from tests.iceberg.engines.environment import run_statements
from tests.iceberg.servers import Server
from tests.iceberg.writers import ids

pytestmark = pytest.mark.long
WRITES = (
    "CREATE NAMESPACE lake.{0}",
    "CREATE TABLE lake.{0}.a (id BIGINT, note STRING, day DATE) USING iceberg PARTITIONED BY (day)",
    "INSERT INTO lake.{0}.a VALUES (1, 'x', DATE '2026-11-01'), (2, 'y', DATE '2026-11-02')",
    "INSERT INTO lake.{0}.a SELECT id, 'z', DATE '2026-11-03' FROM range(10, 13)",
    "CREATE TABLE lake.{0}.b USING iceberg AS SELECT * FROM lake.{0}.a",
    "ALTER TABLE lake.{0}.a ADD COLUMN w DOUBLE",
    "INSERT INTO lake.{0}.a VALUES (20, 'w', DATE '2026-11-04', 1.5)",
)
CHANGES = (
    "DELETE FROM lake.{0}.a WHERE id = 1",
    "DELETE FROM lake.{0}.a WHERE day = DATE '2026-11-04'",
    "UPDATE lake.{0}.a SET note = 'q' WHERE id = 11",
    """
    MERGE INTO lake.{0}.a AS t USING (SELECT id, 'm' AS note FROM range(12, 14)) AS s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET note = s.note
    WHEN NOT MATCHED THEN INSERT (id, note, day) VALUES (s.id, s.note, DATE '2026-11-03')
    """,
    "INSERT OVERWRITE lake.{0}.b SELECT * FROM lake.{0}.b WHERE id > 10",
)
MODES = """
    ALTER TABLE lake.{0}.a SET TBLPROPERTIES
    ('write.delete.mode' = '{1}', 'write.update.mode' = '{1}', 'write.merge.mode' = '{1}')
"""
REFUSED = (
    "CALL lake.system.rewrite_data_files(table => '{0}.a', options => map('rewrite-all', 'true'))",
    "ALTER TABLE lake.{0}.a DROP COLUMN w",
)
READS = (
    "SELECT id, note FROM lake.{0}.a ORDER BY id",
    "SELECT id FROM lake.{0}.b ORDER BY id",
)
LEFT = [[2, "y"], [10, "z"], [11, "q"], [12, "m"], [13, "m"]]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("form", ["v2", "v3"])
def test_spark_writes(lake: Lake, server: Server, tmp_path: Path, form: str, mode: str) -> None:
    name = f"{form}_{mode.replace('-', '_')}"
    groups = (WRITES, (MODES,), CHANGES, REFUSED, READS)
    statements = [one.format(name, mode) for group in groups for one in group]
    answers = iter(run_statements(server.url, tmp_path, form, statements))
    written, modes, changed, refused, read = ([next(answers) for _ in group] for group in groups)
    assert [one.get("error", "") for one in (*written, *modes, *changed)] == [""] * len((*WRITES, MODES, *CHANGES))
    assert ["ICEBERG_WRITE" in one.get("error", "") for one in refused] == [True] * len(REFUSED)
    assert [one["rows"] for one in read] == [LEFT, [[11], [12]]]
    first, second = lake.table(f"{name}.a"), lake.table(f"{name}.b")
    rows = sorted([row["id"], row["note"]] for row in first.to_arrow().to_pylist())
    assert (rows, ids(second)) == (LEFT, [11, 12])
    assert list(first.meta.partition_columns) == ["day"]
    assert first.to_arrow(where="day = DATE '2026-11-04'").num_rows == 0
    assert sorted(first.to_arrow(version=4).column("id").to_pylist()) == [1, 2, 10, 11, 12, 20]


METADATA = (
    "SELECT count(*) FROM lake.{0}.a.snapshots",
    "SELECT count(*) FROM lake.{0}.a.history",
    "SELECT sum(record_count) FROM lake.{0}.a.files",
    "SELECT count(*) FROM lake.{0}.a.partitions",
    "SELECT count(*) FROM lake.{0}.a.manifests",
    "SELECT count(*) FROM lake.{0}.a.branch_main",
    "CALL lake.system.create_changelog_view(table => '{0}.a')",
)


def test_spark_reads_metadata_tables(lake: Lake, server: Server, tmp_path: Path) -> None:
    statements = [one.format("meta") for one in (*WRITES[:4], *METADATA)]
    answers = run_statements(server.url, tmp_path, "v3", [*statements, "SELECT 1 FROM lake.meta.a.nothing"])
    assert [one.get("error", "") for one in answers[:-1]] == [""] * len(statements)
    assert [one["rows"] for one in answers[4:-2]] == [[[3]], [[3]], [[5]], [[3]], [[1]], [[5]]]
    assert "TABLE_OR_VIEW_NOT_FOUND" in answers[-1]["error"]


REMOVED = (
    "SELECT status, count(*) FROM lake.shop.{0}.entries GROUP BY status ORDER BY status",
    "SELECT sum(record_count), count(*) FROM lake.shop.{0}.files",
    "SELECT sum(deleted_data_files_count), sum(added_data_files_count) FROM lake.shop.{0}.manifests",
    "SELECT operation FROM lake.shop.{0}.snapshots ORDER BY committed_at",
    "SELECT sum(record_count) FROM lake.shop.{0}.partitions",
    "CALL lake.system.create_changelog_view(table => 'shop.{0}', changelog_view => 'changed')",
    "SELECT _change_type, id, _commit_snapshot_id FROM changed ORDER BY _commit_snapshot_id, id",
    "DELETE FROM lake.shop.{0} WHERE id = 4",
    "SELECT id FROM lake.shop.{0}",
)


@pytest.mark.parametrize("inlined", ["0", "100"], ids=["files", "inlined"])
def test_spark_reads_what_was_removed(lake: Lake, server: Server, tmp_path: Path, inlined: str) -> None:
    name = f"removed_{inlined}"
    properties = {"write.inline.rows": inlined}
    ours = lake.create_table(f"shop.{name}", "id bigint, day string", partition_by=["day"], properties=properties)
    ours.append([{"id": 1, "day": "a"}, {"id": 2, "day": "b"}])
    ours.append([{"id": 3, "day": "a"}, {"id": 4, "day": "b"}])
    ours.truncate(partition={"day": "a"})
    ours.delete("id = 2")
    answers = run_statements(server.url, tmp_path, "v3", [one.format(name) for one in REMOVED])
    assert [one.get("error", "") for one in answers] == [""] * len(REMOVED)
    entries, files, manifests, operations, partitions, _, changes, _, left = (one["rows"] for one in answers)
    assert entries == [[0, 1], [2, 1]]
    assert (files, partitions, left) == ([[1, 1]], [[1]], [])
    assert manifests == [[1, 0]]
    assert operations == [["append"], ["append"], ["append"], ["delete"], ["delete"]]
    inserted = [["INSERT", 1, 2], ["INSERT", 2, 2], ["INSERT", 3, 3], ["INSERT", 4, 3]]
    assert changes == [*inserted, ["DELETE", 1, 4], ["DELETE", 3, 4], ["DELETE", 2, 5]]


REPLACES = (
    "CREATE NAMESPACE lake.{0}",
    """
    CREATE OR REPLACE TABLE lake.{0}.a USING iceberg PARTITIONED BY (day) TBLPROPERTIES ('note' = 'one')
    AS SELECT id, DATE '2026-11-01' AS day FROM range(3)
    """,
    """
    CREATE OR REPLACE TABLE lake.{0}.a USING iceberg PARTITIONED BY (day)
    AS SELECT id, DATE '2026-11-02' AS day, 'new' AS note FROM range(5, 7)
    """,
    """
    CREATE OR REPLACE TABLE lake.{0}.a USING iceberg PARTITIONED BY (day)
    AS SELECT id + 10 AS id, day, note FROM lake.{0}.a
    """,
)
AFTER = (
    "SELECT id, note FROM lake.{0}.a ORDER BY id",
    "SELECT id FROM lake.{0}.a VERSION AS OF 2 ORDER BY id",
    "REPLACE TABLE lake.{0}.a (id BIGINT, day DATE) USING iceberg PARTITIONED BY (day)",
    "SELECT count(*) FROM lake.{0}.a",
)


@pytest.mark.parametrize("form", ["v2", "v3"])
def test_spark_replaces_tables_as_select(lake: Lake, server: Server, tmp_path: Path, form: str) -> None:
    """The table is new, then there, then replaced by what is read of it, then emptied."""
    name = f"replaced_{form}"
    answers = run_statements(server.url, tmp_path, form, [one.format(name) for one in (*REPLACES, *AFTER)])
    assert [one.get("error", "") for one in answers] == [""] * len(answers)
    assert [one["rows"] for one in answers[len(REPLACES) :]] == [[[15, "new"], [16, "new"]], [[0], [1], [2]], [], [[0]]]
    ours = lake.table(f"{name}.a")
    assert [ids_at(ours, version) for version in range(1, 5)] == [[0, 1, 2], [5, 6], [15, 16], []]
    assert ours.meta.properties["user.iceberg.note"] == "one"


def ids_at(table: Table, version: int) -> list[int]:
    return sorted(table.to_arrow(version=version).column("id").to_pylist())


@pytest.mark.parametrize("form", ["v2", "v3"])
def test_spark_writes_on_a_branch(lake: Lake, server: Server, tmp_path: Path, form: str) -> None:
    name = f"branch_{form}"
    made = [one.format(name) for one in WRITES[:4]]
    assert [one.get("error", "") for one in run_statements(server.url, tmp_path, form, made)] == [""] * len(made)
    branch = lake.branch(name)
    statements = [one.format(name) for one in (*WRITES[4:], *CHANGES, *READS, "SHOW TABLES IN lake.{0}")]
    answers = run_statements(server.url, tmp_path, f"{form}@{name}", statements)
    assert [one.get("error", "") for one in answers] == [""] * len(statements)
    assert [one["rows"] for one in answers[-3:-1]] == [LEFT, [[11], [12]]]
    assert sorted(row[1] for row in answers[-1]["rows"]) == ["a", "b"]
    assert (ids(lake.table(f"{name}.a")), branch.tables(name)) == ([1, 2, 10, 11, 12], [f"{name}.a", f"{name}.b"])
    merged = branch.merge()
    assert [(one.name, one.fast_forward) for one in merged] == [(f"{name}.a", True), (f"{name}.b", True)]
    first = lake.table(f"{name}.a").to_arrow().to_pylist()
    assert sorted([row["id"], row["note"]] for row in first) == LEFT
    assert ids(lake.table(f"{name}.b")) == [11, 12]
