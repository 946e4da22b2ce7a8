"""Bugs of the Iceberg catalog."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

ICEBERG = "worker/iceberg/"

BUGS: Final = (
    Bug(
        "two appends of Iceberg's clients in one millisecond are one transaction",
        ICEBERG + "commits/txn_ids.py",
        (('f"{table_id}/{snapshot_id}".encode()', "table_id.encode()"),),
        own_tests=("tests/iceberg/test_txn_ids.py", "-k", "own"),
    ),
    Bug(
        "a repeated append of Iceberg's clients is another transaction",
        ICEBERG + "commits/txn_ids.py",
        (
            ("import hashlib\n", "import hashlib\nimport os\n"),
            ('f"{table_id}/{snapshot_id}".encode()', "os.urandom(8)"),
        ),
        own_tests=("tests/iceberg/test_txn_ids.py", "-k", "same_again"),
    ),
    Bug(
        "the schema that a commit of Iceberg's clients requires is not judged",
        ICEBERG + "commits/requirements.py",
        (('_same(table, "current schema changed", table.schema_id, number)', "pass"),),
        own_tests=("tests/iceberg/test_commit_refusals.py", "-k", "judged"),
    ),
    Bug(
        "a filter of Iceberg on a missing column is false",
        ICEBERG + "metadata/conditions.py",
        (
            (
                "        if column is None:\n            return TRUE\n",
                "        if column is None:\n            return FALSE\n",
            ),
        ),
        own_tests=("tests/iceberg/test_conditions.py", "-k", "cannot_be_said"),
    ),
    Bug(
        "a literal of Iceberg that a column can't hold makes its test false",
        ICEBERG + "metadata/conditions.py",
        (
            (
                "    if literal_range is None:\n        return TRUE\n",
                "    if literal_range is None:\n        return FALSE\n",
            ),
        ),
        own_tests=("tests/iceberg/test_conditions.py", "-k", "cannot_be_said"),
    ),
    Bug(
        "NOT negates a filter of Iceberg after parts of it were left out",
        ICEBERG + "metadata/conditions.py",
        (
            (
                'return self._translated(_part(tree, "child"), depth + 1, is_negated=not is_negated)',
                'return Predicate(negation=self._translated(_part(tree, "child"), depth + 1, is_negated=is_negated))',
            ),
        ),
        own_tests=("tests/iceberg/test_conditions.py", "-k", "ruled_out"),
    ),
    Bug(
        "files in manifests have the sequence number after that of their rows",
        ICEBERG + "metadata/entries.py",
        (("sequence_of(added), shown.sequence,", "sequence_of(added), shown.sequence + 1,"),),
        own_tests=("tests/iceberg/test_entries.py", "-k", "data_file"),
    ),
    Bug(
        "the query of a view is shown without the names of its columns",
        ICEBERG + "metadata/views.py",
        (
            (
                "    if NAMES_COLUMNS.match(view.text) or not are_unique:",
                "    if are_unique or not are_unique:",
            ),
        ),
        own_tests=("tests/iceberg/test_views.py", "-k", "finds_by_name"),
    ),
    Bug(
        "a listing shows every table with imported files",
        ICEBERG + "rest/listing.py",
        (
            (
                "        if meta.has_imports or is_partial(meta):\n            return False\n",
                "        if meta.has_imports or is_partial(meta):\n            return True\n",
            ),
        ),
        own_tests=("tests/iceberg/test_listing.py", "-k", "not_listed"),
    ),
    Bug(
        "files are declared as sorted by floats, whose 0.0 and -0.0 Iceberg orders",
        ICEBERG + "metadata/sort_orders.py",
        ((" and kind.name not in FLOATS)", ")"),),
        own_tests=("tests/iceberg/test_sort_orders.py", "-k", "told_by"),
    ),
    Bug(
        "a commit with an unknown outcome is reported as failed",
        ICEBERG + "rest/writes.py",
        (
            (
                "        raise RestError(500, UNKNOWN, str(error)) from error",
                "        raise RestError(503, UNKNOWN, str(error)) from error",
            ),
        ),
        own_tests=("tests/iceberg/test_commit_outcomes.py", "-k", "lost"),
    ),
    Bug(
        "a change of Iceberg's clients need not follow the newest snapshot",
        ICEBERG + "commits/requirements.py",
        (("    _same(table, CHANGED.format(MAIN), table.head, parent_id, moved=True)\n", ""),),
        own_tests=("tests/iceberg/test_commit_changes.py", "-k", "older_snapshot"),
    ),
    Bug(
        "the snapshot that an append of Iceberg's clients requires is not judged",
        ICEBERG + "rest/writes.py",
        (("            rows = replace(rows, since=since)\n", ""),),
        own_tests=("tests/iceberg/test_commit_requirements.py", "-k", "older_snapshot"),
    ),
    Bug(
        "a commit that depends on the rows of a version is judged only against the newest later version",
        "metaservice/service/commit/judging.py",
        (("    for version in range(newest, last, -1):\n", "    for version in range(newest, newest - 1, -1):\n"),),
        own_tests=("tests/iceberg/test_commit_requirements.py", "-k", "changed_no_row or depends_on"),
    ),
    Bug(
        "files of hidden rows get the version of their data files",
        ICEBERG + "metadata/facts.py",
        (("return max(self.hidden_version, self.entry.added_version)", "return self.entry.added_version"),),
        own_tests=("tests/iceberg/test_commit_requirements.py", "-k", "stays_deleted"),
    ),
    Bug(
        "snapshots of Iceberg don't list the files that a commit removed",
        ICEBERG + "metadata/manifests.py",
        (("        if not facts.removed:\n", "        if True:\n"),),
        own_tests=("tests/iceberg/test_removed_files.py", "-k", "undone or come_once"),
    ),
    Bug(
        "a commit of Iceberg that adds rows and removes files is shown as an append",
        ICEBERG + "metadata/table_metadata.py",
        (('{"append": made.removes_files,', '{"append": False,'),),
        own_tests=("tests/iceberg/test_removed_files.py", "-k", "became_one or stay"),
    ),
    Bug(
        "a snapshot of Iceberg whose predecessor is not known has a parent",
        ICEBERG + "metadata/table_metadata.py",
        (("    if made.follows and commit", "    if made.version and commit"),),
        own_tests=("tests/iceberg/test_removed_files.py", "-k", "no_parent"),
    ),
    Bug(
        "a delete changes the file that shows inlined rows to Iceberg's clients",
        ICEBERG + "live_files.py",
        ((" and (self._is_keyed or not file.inlined):", ":"),),
        own_tests=("tests/iceberg/test_removed_files.py", "-k", "files_of_inlined"),
    ),
    Bug(
        "a second try of an append by pyiceberg is judged by the table that it loaded last",
        ICEBERG + "rest/writes.py",
        (("            since = min(since, loaded)\n", "            since = max(since, loaded)\n"),),
        own_tests=("tests/iceberg/test_removed_files.py", "-k", "upsert"),
    ),
    Bug(
        "a change of Iceberg's clients may begin before other commits",
        ICEBERG + "commits/changes.py",
        ((", unchanged_since=since", ""), (", read_version=read)", ")")),
        own_tests=("tests/iceberg/test_commit_changes.py", "-k", "lose_nothing"),
    ),
    Bug(
        "rows that carry their ids are hidden by the ids of others",
        ICEBERG + "deleted_rows.py",
        (
            (
                "    at = positions_of(positions)\n    if not file.carries_row_ids:",
                "    at = positions_of(positions)\n    if True:",
            ),
        ),
        own_tests=("tests/iceberg/test_commit_changes.py", "-k", "keep_their_ids"),
    ),
    Bug(
        "a snapshot of Iceberg's clients may leave out files that it doesn't remove",
        ICEBERG + "commits/changes.py",
        (("if changes.totals is not None and", "if False and"),),
        own_tests=("tests/iceberg/test_commit_changes.py", "-k", "follow_is_refused"),
    ),
    Bug(
        "a snapshot of Iceberg's clients may show deleted rows again",
        ICEBERG + "commits/changes.py",
        (("if uri in files_by_uri and files_by_uri[uri].hidden", "if False and files_by_uri[uri].hidden"),),
        own_tests=("tests/iceberg/test_commit_changes.py", "-k", "stay_hidden"),
    ),
    Bug(
        "files of Iceberg's clients may have the row ids of rows that stay",
        ICEBERG + "commits/data_files.py",
        (("if len(ids) < count or ids - hidden:", "if len(ids) < count:"),),
        own_tests=("tests/iceberg/test_commit_changes.py", "-k", "ids_of_others"),
    ),
    Bug(
        "the partition of a file of Iceberg's clients is not compared where the file has another name for its column",
        ICEBERG + "commits/data_files.py",
        (
            (
                "    name = _names_by_id(parquet.schema_arrow).get(column.column_id)\n",
                "    name = column.name if column.name in parquet.schema_arrow.names else None\n",
            ),
        ),
        own_tests=("tests/iceberg/test_commits.py", "-k", "whatever_the_names"),
    ),
    Bug(
        "an imported column has the name in files that it has in Iceberg's schema",
        "worker/imports/iceberg_table.py",
        ((" and not any(map(_change_in_files, own))", ""),),
        own_tests=("tests/imports/test_iceberg.py", "-k", "others_in_files"),
    ),
    Bug(
        "the catalog reads request bodies before it authenticates the caller",
        ICEBERG + "rest/app.py",
        (
            (
                "                lake = callers.recent(shows)\n",
                "                await request.body()\n                lake = callers.recent(shows)\n",
            ),
        ),
        own_tests=("tests/iceberg/test_strangers.py", "-k", "before_the_body"),
    ),
    Bug(
        "a type of a foreign Avro file may contain itself",
        "worker/formats/avro_values.py",
        (("        if name and name in self._open:", "        if name and name in self._open and not depth:"),),
        own_tests=("tests/iceberg/test_foreign_avro.py", "-k", "more_than_its_bytes"),
    ),
    Bug(
        "a list in a foreign Avro file may have more items than bytes",
        "worker/formats/avro_readers.py",
        (("    if count > len(raw) - at:", "    if count > len(raw) << 40:"),),
        own_tests=("tests/iceberg/test_foreign_avro.py", "-k", "more_than_its_bytes"),
    ),
)
