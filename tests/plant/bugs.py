"""The bugs: each a replacement of text that must be there exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bug:
    """`swaps` pairs what the file says with what it says once the bug is planted.

    `spark` are the tests, in pytest's words, of a bug that no suite can see. `also`: what else it takes, as a
    file, what that says and what it says then.
    """

    name: str
    file: str
    swaps: tuple[tuple[str, str], ...]
    spark: tuple[str, ...] = ()
    also: tuple[tuple[str, str, str], ...] = ()

    def plant(self, root: Path) -> None:
        for file, old, new in (*((self.file, *swap) for swap in self.swaps), *self.also):
            path = root / file
            text = path.read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise LookupError(f"{self.name}: {file} has {text.count(old)} times {old!r}")
            path.write_text(text.replace(old, new), encoding="utf-8")


SEND = """        self.jobs += answered
        for sink, given in answers.items():
            sink(given)
"""
SEND_EARLY = """            for sink, given in answers.items():
                sink(given)
            self._tick()
"""
SET_HEAD = "        table.head, table.last_time_us = commit.version, commit.time_us\n"
PUBLISH_EARLY = "        state.views.publish(table.view())\n"

PUT_OPEN = '            self.batch.put(keys.open_key(raw), b"")\n'

SHARED = """            rows = mine.common(hidden, limits.ROWS_SAMPLED_MAX)
            if rows is not None:
"""

EXPIRED = "    TxnState.EXPIRED: {"

SERVICE, CORE = "metaservice/service/", "metaservice/core/"
ICEBERG = "iceberg/"
CATALOG = "worker/spark_catalog/src/main/java/io/laketx/spark/"

FENCES = "            self._fenced = True\n            return self._fence()\n"
FLUSH = "        self.ask(lambda: self._db.flush_with_options(_LOG))\n        self._is_synced"
PUT_MANIFEST = "            self._objects.put(_manifest_name(backup_id), encode_manifest(manifest))\n"
ADOPT = "            self._mine, self._tag = found\n"
ADOPT_LATE = ADOPT + "            self._valid_until_ms = self._clocks.mono_ms() + VALID_MS\n"

BUGS = (
    Bug(
        "an INSERT may follow an INSERT",
        CORE + "table/profiles.py",
        (
            (
                "OpClass.INSERT_INTO: frozenset({OpClass.MINOR_COMPACT, OpClass.MAJOR_COMPACT})",
                "OpClass.INSERT_INTO: frozenset({OpClass.MINOR_COMPACT, OpClass.MAJOR_COMPACT, OpClass.INSERT_INTO})",
            ),
        ),
    ),
    Bug(
        "a commit's time is the clock's, also when that went back",
        CORE + "clock.py",
        (("max(now_us, last_commit_us + 1, answered_us + 1)", "now_us"),),
    ),
    Bug(
        "an answered time is ignored",
        CORE + "clock.py",
        (("max(now_us, last_commit_us + 1, answered_us + 1)", "max(now_us, last_commit_us + 1)"),),
    ),
    Bug(
        "the answered times are forgotten in a crash",
        SERVICE + "decider/state.py",
        (("self.ceiling_us = self.answered_us = keys", "self.ceiling_us = keys"),),
    ),
    Bug(
        "a repeated begin or append is taken as new",
        SERVICE + "commit/transactions.py",
        (
            (
                "        found = state.find_txn(txn_id)\n",
                "        found = state.open.get(txn_id)\n",
            ),
        ),
    ),
    Bug(
        "a minor compaction's files get its commit's data version",
        CORE + "commit/rebase.py",
        (("data_version = change.read_version if whole else highest", "data_version = head + 1"),),
    ),
    Bug(
        "lineage is not followed: inputs that are gone are left out",
        CORE + "commit/rebase.py",
        (
            ("if isinstance(gone, Footprint):", "if gone is None:"),
            ("gone = _follow(change, meta, steps, group)", "gone = {p for p in group.inputs if p in now}"),
        ),
    ),
    Bug(
        "answers leave before the sync",
        SERVICE + "decider/decider.py",
        (
            ("            self._tick()\n", SEND_EARLY),
            (SEND, ""),
        ),
    ),
    Bug(
        "readers see the head before it is durable",
        SERVICE + "commit/outcomes.py",
        ((SET_HEAD, SET_HEAD + PUBLISH_EARLY),),
    ),
    Bug(
        "retention goes by hours that are not durable yet",
        SERVICE + "retention/housekeeping.py",
        (("retain_us(view.meta.properties)", "retain_us(table.meta.properties)"),),
    ),
    Bug(
        "a plan looks for what was taken out up to the durable head alone",
        SERVICE + "read/scan.py",
        (("partition, version, self._removed_max)", "partition, version, self._wanted.version)"),),
    ),
    Bug(
        "row ids start again after a restart",
        SERVICE + "decider/loading.py",
        (("keys.decode_version(raw_row) if raw_row is not None else 1", "1"),),
    ),
    Bug(
        "an expired transaction may commit",
        CORE + "commit/transaction.py",
        ((EXPIRED, EXPIRED + "TxnEvent.COMMIT: TxnState.OPEN, TxnEvent.WIN: TxnState.COMMITTED, "),),
    ),
    Bug(
        "the delta profiles don't look at concurrent appends",
        CORE + "commit/judge.py",
        (("return _delta_appends(mine, winner) or _delta", "return _delta"),),
    ),
    Bug(
        "an overwrite removes only what was live at its read version",
        CORE + "commit/rebase.py",
        (("change.operation in SCOPED and meta.profile.is_delta", "change.operation in SCOPED"),),
    ),
    Bug(
        "registered files are forgotten in a crash",
        SERVICE + "decider/state.py",
        (("                    table.staged[entry.path] = entry\n", "                    pass\n"),),
    ),
    Bug(
        "planning passes over a bucket with as many small files as its policy allows",
        CORE + "compaction/quiet.py",
        (
            ("small >= policy.minor_files", "small > policy.minor_files"),
            ("small >= policy.cluster_files", "small > policy.cluster_files"),
        ),
    ),
    Bug(
        "what was registered before the first write is not written",
        SERVICE + "decider/state.py",
        ((PUT_OPEN + "            self._put_staged(txn)\n", PUT_OPEN),),
    ),
    Bug(
        "a worker whose claim is another one's by now may go on",
        CORE + "compaction/tasks.py",
        (("task.state is not TaskState.CLAIMED or task.fence != fence", "task.state is not TaskState.CLAIMED"),),
    ),
    Bug(
        "under the delta profiles a delete set that names no files touches none",
        CORE + "table/model.py",
        (("return self.is_delete_set and not self.touches", "return False"),),
    ),
    Bug(
        "a delete set that names no files is forgotten in the log",
        "metaservice/store/records.py",
        (("frozenset(e.partition for e in own_sets if not e.touches)", "frozenset()"),),
    ),
    Bug(
        "an empty change is checked at snapshot level whatever its transaction does elsewhere",
        CORE + "commit/judge.py",
        (("changes_data(change) or change.others_change_data:", "changes_data(change):"),),
    ),
    Bug(
        "an INSERT beside a RESTORE is a blind append",
        CORE + "commit/whole.py",
        (("all(blind[:at] + blind[at + 1 :])", "True"),),
    ),
    Bug(
        "under row_level two changes of one row pass each other",
        CORE + "commit/row_level.py",
        ((SHARED, SHARED.replace("is not None", "is not None and len(rows) > 1")),),
    ),
    Bug(
        "under row_level new rows that match what was read pass",
        CORE + "commit/row_level.py",
        (("if entry.partition not in touched or (me", "if entry.partition in touched or (me"),),
    ),
    Bug(
        "a log that was deleted or emptied is opened as an older state",
        "metaservice/store/rocks.py",
        (
            ("        refuse_a_lost_log(path)\n", ""),
            ("        refuse_lost_writes(path, db.latest_sequence_number())\n", ""),
        ),
    ),
    Bug(
        "after a sync it is not noted what was synced, nor looked whether the folder is there",
        "metaservice/store/rocks.py",
        (("            self._mark.note(self._db.latest_sequence_number())\n", ""),),
    ),
    Bug(
        "a clock that jumped between two runs is believed",
        SERVICE + "decider/clockguard.py",
        (("        self._hold(jump_ms)\n", ""),),
    ),
    Bug(
        "an id whose outcome was forgotten may begin again under another clock",
        CORE + "commit/transaction.py",
        (("    if time_ms < forgotten_ms:\n", "    if time_ms < 0:\n"),),
    ),
    Bug(
        "leases run out while the service stands still",
        SERVICE + "decider/pauses.py",
        (("            self._decider.state.start_leases()\n", ""),),
    ),
    Bug(
        "ended tasks are forgotten under a clock that is not believed",
        SERVICE + "compaction/maintenance.py",
        (("        keep_from_us = 0 if self._halted() else now_us", "        keep_from_us = now_us"),),
    ),
    Bug(
        "a key needs no partition columns",
        CORE + "table/key_scope.py",
        (("    if missing and properties", "    if len(missing) > 1 and properties"),),
    ),
    Bug(
        "a row moves onto a key that is there",
        "worker/write/partition_moves.py",
        (("    if taken:\n", "    if len(taken) > 1:\n"),),
        spark=("tests/spark/test_moves.py", "-k", "no_row_moves"),
    ),
    Bug(
        "instants that look alike in the session's zone are one partition",
        "worker/write/staging.py",
        (("            value = sf.unix_micros(value)", "            value = value"),),
        spark=("tests/spark/test_zones.py", "-k", "append"),
    ),
    Bug(
        "a partition's time without a zone is one of UTC",
        "worker/base/values.py",
        (("moment.replace(tzinfo=zone)", "moment.replace(tzinfo=UTC)"),),
    ),
    Bug(
        "a compaction's footers bound floats that hold NaN",
        "worker/base/parquet_options.py",
        (("not (pa.types.is_nested(one.type) or path in nan)", "not pa.types.is_nested(one.type)"),),
    ),
    Bug(
        "bounds of floats from outside are believed",
        "metaservice/rpc/plans.py",
        (('if kind == "real" and file.external:', 'if kind == "integer" and file.external:'),),
    ),
    Bug(
        "conditions on floats are pushed down into Parquet files",
        "worker/read/float_conditions.py",
        (("return rows.withColumns(columns) if columns else rows", "return rows"),),
        spark=("tests/spark/test_pruning.py", "-k", "no_match and not any"),
    ),
    Bug(
        "what newer files hide in a file is remembered whichever they are",
        "worker/spark_catalog/src/main/java/io/laketx/spark/read/HiddenRows.java",
        (("for (String one : newer) add(digest, one);", ""),),
        spark=("tests/spark/test_sql_reads.py", "-k", "found_once or histories"),
    ),
    Bug(
        "a field's name in older files ends at a dot inside its backticks",
        "worker/read/file_layouts.py",
        (("split_path(paths[field_id])[-1]", 'paths[field_id].rpartition(".")[2]'),),
        spark=("tests/spark/test_sql_reads.py", "-k", "fields_of_structs"),
    ),
    Bug(
        "the purge asks its own table alone before it deletes",
        "metaservice/store/imports.py",
        (("return {path for path in paths if _any(cursor, keys.named_prefix(table, path))}", "return set()"),),
    ),
    Bug(
        "a file from outside is another one when it is spelled otherwise",
        "metaservice/store/imports.py",
        (("identity_of(path).encode()", "path.encode()"),),
    ),
    Bug(
        "the purge takes the mark of any service for its own",
        "worker/base/warehouse.py",
        (("if mark.service_id != known.service_id:", "if not mark.service_id:"),),
    ),
    Bug(
        "a restored service takes the mark of the history before for its own",
        "worker/base/warehouse.py",
        (("if mark.history_epoch != known.history_epoch:", "if not mark.history_epoch:"),),
    ),
    Bug(
        "conditions on an old version are read by the newest names",
        "metaservice/rpc/plans.py",
        (("reads.meta_at(table, version) if has_names", "table.meta if has_names"),),
    ),
    Bug(
        "an option that stands where a value is missing is taken for the value",
        "metaservice/cli/command.py",
        (("isinstance(text, str) and text in names", "text is names"),),
    ),
    Bug(
        "changes of columns are done in the order of their options",
        "metaservice/cli/table.py",
        (
            (
                'order = [each.partition("=")[0] for each in args]',
                'order = sorted(each.partition("=")[0] for each in args)',
            ),
        ),
    ),
    Bug(
        "a table outlives the transaction that it was made for",
        SERVICE + "commit/dropping.py",
        (("if table is not None and is_unborn(table.meta.name):", "if table is not None and not table.meta.name:"),),
        spark=("tests/integration/test_new_tables.py", "-k", "goes_with"),
    ),
    Bug(
        "a hidden table is dropped while the transaction that fills it is open",
        SERVICE + "commit/dropping.py",
        (("is_filled = any(table_id in txn.tables for txn in state.open.values())", "is_filled = False"),),
        spark=("tests/retention/test_unborn.py",),
    ),
    Bug(
        "a row that moves by SQL takes the place of the one that has its key",
        CATALOG + "write/Landings.java",
        (("if (!landed.contains(key)) continue;", "if (landed.contains(key) || landed.isEmpty()) continue;"),),
        spark=("tests/spark/test_sql_moves.py", "-k", "key_is_free"),
    ),
    Bug(
        "an overwrite by a condition takes rows of any partition",
        CATALOG + "write/PartitionCondition.java",
        (
            (
                "if (!covered.containsKey(WireValues.keyOf(partition)) && !holds(partition)) {",
                "if (covered.isEmpty()) {",
            ),
        ),
        spark=("tests/spark/test_statements.py", "-k", "partitions"),
    ),
    Bug(
        "a statement of a transaction sees the newest version",
        CATALOG + "read/SqlTransaction.java",
        (
            (
                "    Snapshot seen = tables.get(newest.getTableId());\n    if (seen == null) {",
                "    Snapshot seen;\n    {",
            ),
        ),
        spark=("tests/spark/test_sql_transactions.py", "-k", "see_one_version"),
    ),
    Bug(
        "a table takes the name of a view",
        SERVICE + "decider/naming.py",
        (("    if state.queries.is_taken(name) and", "    if view and state.queries.is_taken(name) and"),),
        spark=("tests/integration/test_views.py", "-k", "one_name"),
    ),
    Bug(
        "the optimiser takes the bounds of some files for those of all",
        CATALOG + "read/ColumnBounds.java",
        (("        isBounded = false;\n        return;\n", "        return;\n"),),
        spark=("tests/spark/test_sql_statistics.py", "-k", "cut_strings"),
    ),
    Bug(
        "an increment by SQL takes the removal of an updated row's old image for a delete",
        CATALOG + "changes/BucketReader.java",
        (("if (!images.contains(id)) compare(", "compare("),),
        spark=("tests/spark/test_sql_changes.py", "-k", "random_histories"),
    ),
    Bug(
        "a stream that stopped within a commit begins it anew",
        CATALOG + "changes/Position.java",
        (("return isPart() && asked == version ? files : 0;", "return isSnapshot && asked == version ? files : 0;"),),
        spark=("tests/spark/test_sql_stream_sources.py", "-k", "how_much"),
    ),
    Bug(
        "a stream keeps nothing of what it has not read",
        CATALOG + "changes/StreamMark.java",
        (
            ("    advance(Math.max(version, kept));\n", "    end();\n"),
            ("if (!isTemporary || cursor == null)", "if (cursor == null)"),
        ),
        spark=("tests/spark/test_stream_kills.py", "-k", "once"),
    ),
    Bug(
        "a batch that Spark repeats is committed again",
        CATALOG + "write/StreamedWrite.java",
        (("            .addAppVersions(app)\n            .setPrincipal", "            .setPrincipal"),),
        spark=("tests/spark/test_sql_stream_sinks.py", "-k", "repeats"),
    ),
    Bug(
        "the shell takes a server's catalog for whatever lake was named",
        "worker/shell/command.py",
        (("if is_named and found != asked:", "if is_named and not found:"),),
        spark=("tests/spark/test_sql_remote.py", "-k", "another_lake"),
    ),
    Bug(
        "the jar of a wheel is not found",
        "worker/base/spark_jar.py",
        (("places.append(Path(wheel.origin).parent)", "places.append(Path(wheel.origin))"),),
        spark=("tests/integration/test_wheels.py", "-k", "found"),
    ),
    Bug(
        "Spark SQL shows rows that a delete set hides",
        CATALOG + "read/Hides.java",
        (("1 - (int) ((words[word] >>> position) & 1)", "1"),),
        spark=("tests/spark/test_sql_rows.py", "-k", "history and False-True"),
    ),
    Bug(
        "the last row of a file can't be hidden from Spark SQL",
        CATALOG + "read/RowIds.java",
        (("long last = first + rows - 1;", "long last = first + rows - 2;"),),
        spark=("tests/spark/test_sql_reads.py", "-k", "histories"),
    ),
    Bug(
        "a MERGE by Spark SQL doesn't say what it read",
        CATALOG + "write/LakeDelta.java",
        (("found.add(Read", "if (command != RowLevelOperation.Command.MERGE) found.add(Read"),),
        spark=("tests/spark/test_sql_rows.py", "-k", "merge_loses"),
    ),
    Bug(
        "a MERGE that asks for more than the key is taken for an insert by key",
        CATALOG + "write/SparkPlans.java",
        (("    if (!isWhole(join.left())) return null;\n", ""),),
        spark=("tests/spark/test_sql_rows.py", "-k", "reads_no_rows"),
    ),
    Bug(
        "files whose partition is NULL are left out by NOT (partition <=> value) in Spark SQL",
        CATALOG + "read/Conditions.java",
        (("equal == null ? null : allOf(List.of(equal, not(isNull(column.getName()))))", "equal"),),
        spark=("tests/spark/test_statements.py", "-k", "partition_values"),
    ),
    Bug(
        "rows that a delete set hides are shown without Spark",
        "worker/read/version_rows.py",
        (("hidden=None), hidden=positions)", "hidden=None))"),),
        spark=("tests/arrow/test_version_rows.py",),
    ),
    Bug(
        "NaN is not above every number in a condition without Spark",
        "worker/read/arrow_conditions.py",
        (("return found | is_nan if compare in (gt, ge) else found", "return found"),),
        spark=("tests/arrow/test_version_rows.py",),
    ),
    Bug(
        "an increment without Spark forgets what a restore brought back",
        "worker/read/change_rows.py",
        (("*images, *self._tombstones(), *self._states()]", "*images, *self._tombstones()]"),),
        spark=("tests/arrow/test_change_rows.py",),
    ),
    Bug(
        "a row that is written without Spark goes into another bucket than Spark's",
        "worker/base/spark_hash.py",
        (("return row_hashes(keys) % np.int64(buckets)", "return np.abs(row_hashes(keys)) % np.int64(buckets)"),),
        spark=("tests/spark/test_arrow_writes.py",),
    ),
    Bug(
        "the rows of an inlined file outlive its last version",
        SERVICE + "retention/housekeeping.py",
        (("if entry.inlined:", "if entry.inlined and not entry.rows:"),),
    ),
    Bug(
        "the rows of an inlined file are not stored with its commit",
        SERVICE + "commit/outcomes.py",
        (("            if entry.content:\n", "            if entry.content and not entry.inlined:\n"),),
    ),
    Bug(
        "a transaction that is aborted leaves its inlined rows behind",
        SERVICE + "decider/state.py",
        (("if entry.inlined and not entry.content:", "if entry.inlined and entry.content:"),),
    ),
    Bug(
        "bounds of an inlined file leave out its largest value",
        "worker/write/inlined_files.py",
        (('extremes["max"]', 'extremes["min"]'),),
        spark=("tests/arrow/test_inlined.py", "-k", "entries_say"),
    ),
    Bug(
        "a stream of rows that lost a race is committed without them",
        "worker/api/verbs.py",
        (('            return "fail"\n', "            return policy\n"),),
        spark=("tests/arrow/test_writes.py",),
    ),
    Bug(
        "an empty text of CSV is loaded as NULL",
        "worker/shell/csv_records.py",
        (("quoted_strings_can_be_null=False", "quoted_strings_can_be_null=True"),),
        spark=("tests/arrow/test_csv_records.py",),
    ),
    Bug(
        "a decimal with too many digits is loaded as another number",
        "worker/shell/from_texts.py",
        (('whole = rf"[0-9]{{1,{digits}}}" if digits', 'whole = "[0-9]+" if digits'),),
        spark=("tests/arrow/test_from_texts.py",),
    ),
    Bug(
        "the calls in a session's frames are not checked for rights",
        "metaservice/rpc/session.py",
        (
            (
                "if method is not None:\n                    self._gate.check",
                "if method is None:\n                    self._gate.check",
            ),
        ),
        spark=("tests/integration/test_rights.py", "-k", "session"),
    ),
    Bug(
        "a declared name stays the principal",
        "metaservice/rpc/gate.py",
        (("        given.name = who.principal\n", ""),),
        spark=("tests/integration/test_rights.py", "-k", "name"),
    ),
    Bug(
        "a hidden table can be told from one that isn't there",
        "metaservice/rpc/rights.py",
        (("if table is None or found < READER:", "if table is None:"),),
        spark=("tests/integration/test_rights.py", "-k", "seems"),
    ),
    Bug(
        "a token whose signature is of another key is taken",
        "metaservice/rpc/oidc.py",
        (('options={"require"', 'options={"verify_signature": False, "require"'),),
        spark=("tests/integration/test_identity.py", "-k", "key"),
    ),
    Bug(
        "a refusal for rights is not in the audit",
        "metaservice/rpc/edge.py",
        (("            self._turned_away(refusal, visit, context)\n            raise", "            raise"),),
        spark=("tests/integration/test_identity.py", "-k", "audited"),
    ),
    Bug(
        "a leader that is fenced takes it for any failure, and opens its store again",
        "metaservice/opening.py",
        (
            ("        if self._is_opened:\n", "        if False:\n"),
            (
                "        self._is_opened = True\n",
                "",
            ),
        ),
        spark=("tests/integration/test_high_availability.py", "-k", "once"),
    ),
    Bug(
        "a leader that is fenced closes its store and opens it again, which fences its successor",
        "metaservice/opening.py",
        (("        if self._is_opened:\n", "        if False:\n"),),
        also=(
            (
                "metaservice/store/slate.py",
                FENCES,
                "            pass\n",
            ),
        ),
    ),
    Bug(
        "a leader reopens its store after a PUT whose answer was lost",
        "metaservice/opening.py",
        (("        if self._is_opened:\n", "        if False:\n"),),
    ),
    Bug(
        "a store in a bucket says that a write is durable before the bucket has it",
        "metaservice/store/slate.py",
        (
            (
                "        self.ask(lambda: self._db.flush_with_options(_LOG))\n        self._is_synced",
                "        self._is_synced",
            ),
        ),
    ),
    Bug(
        "a lease is valid from when its renewal was answered, not from when it was sent",
        "metaservice/leadership.py",
        (("following, tag, sent_ms + VALID_MS", "following, tag, self._clocks.mono_ms() + VALID_MS"),),
    ),
    Bug(
        "a lease that was renewed without an answer is valid from when that is found out",
        "metaservice/leadership.py",
        ((ADOPT, ADOPT_LATE),),
    ),
    Bug(
        "a leader takes the lost answer of its own renewal for another's lease",
        "metaservice/leadership.py",
        (("found[0].holder == self._holder and not", "found[0].holder == self._holder and False and not"),),
    ),
    Bug(
        "a former leader goes on with the lease of its successor",
        "metaservice/leadership.py",
        (("found[0].holder == self._holder and not", "not"),),
    ),
    Bug(
        "a lease is taken while its holder may still answer",
        CORE + "lease.py",
        (("TAKE_MS: Final = 4_500", "TAKE_MS: Final = 2_500"),),
    ),
    Bug(
        "a store that is fenced calls it a failure of its own",
        "metaservice/store/slate.py",
        ((FENCES, "            pass\n"),),
        spark=("tests/contract/test_store.py", "-k", "fences"),
    ),
    Bug(
        "a leader answers after its lease",
        "metaservice/leadership.py",
        (("return None if self._left_ms() > 0 else not_leader(self.leader)", "return None"),),
    ),
    Bug(
        "a standby takes a lease that is renewed",
        CORE + "lease.py",
        (("if before is not None and before.tag == tag:", "if before is not None:"),),
    ),
    Bug(
        "a backup's manifest is written before its files",
        "metaservice/store/repository.py",
        (
            (
                "            self._each(\n                list(missing",
                PUT_MANIFEST + "            self._each(\n                list(missing",
            ),
            (PUT_MANIFEST + "        return total\n", "        return total\n"),
        ),
    ),
    Bug(
        "a prune forgets what the backups that it keeps name, but for the newest",
        "metaservice/store/repository.py",
        (("self._named_by(backup_id for backup_id in there if backup_id not in gone)", "self._named_by(there[-1:])"),),
    ),
    Bug(
        "a prune deletes files of a backup that is under way",
        "metaservice/store/repository.py",
        (("            self._refuse_others(name, kind)\n", ""),),
    ),
    Bug(
        "a scheduled backup that failed is not tried again",
        SERVICE + "operate/backup_schedule.py",
        (("self._clocks.mono_ms() + wait_ms\n", "self._clocks.mono_ms() + (wait_ms << 40)\n"),),
    ),
    Bug(
        "two appends of Iceberg's clients in one millisecond are one transaction",
        ICEBERG + "commits/txn_ids.py",
        (('f"{table_id}/{snapshot_id}".encode()', "table_id.encode()"),),
        spark=("tests/iceberg/test_txn_ids.py", "-k", "own"),
    ),
    Bug(
        "an append of Iceberg's clients that comes again is another transaction",
        ICEBERG + "commits/txn_ids.py",
        (
            ("import hashlib\n", "import hashlib\nimport os\n"),
            ('f"{table_id}/{snapshot_id}".encode()', "os.urandom(8)"),
        ),
        spark=("tests/iceberg/test_txn_ids.py", "-k", "same_again"),
    ),
    Bug(
        "the schema that a commit of Iceberg's clients requires is not judged",
        ICEBERG + "commits/requirements.py",
        (('_same(table, "schema", table.schema_id, number)', "pass"),),
        spark=("tests/iceberg/test_commit_refusals.py", "-k", "judged"),
    ),
    Bug(
        "what a filter of Iceberg asks of a column that is not there is false",
        ICEBERG + "metadata/conditions.py",
        (
            (
                "        if column is None:\n            return TRUE\n",
                "        if column is None:\n            return FALSE\n",
            ),
        ),
        spark=("tests/iceberg/test_conditions.py", "-k", "cannot_be_said"),
    ),
    Bug(
        "a literal of Iceberg that a column can't hold makes its test false",
        ICEBERG + "metadata/conditions.py",
        (("    if found is None:\n        return TRUE\n", "    if found is None:\n        return FALSE\n"),),
        spark=("tests/iceberg/test_conditions.py", "-k", "cannot_be_said"),
    ),
    Bug(
        "NOT negates a filter of Iceberg after parts of it were left out",
        ICEBERG + "metadata/conditions.py",
        (
            (
                'return self._found(_part(tree, "child"), depth + 1, is_negated=not is_negated)',
                'return Predicate(negation=self._found(_part(tree, "child"), depth + 1, is_negated=is_negated))',
            ),
        ),
        spark=("tests/iceberg/test_conditions.py", "-k", "ruled_out"),
    ),
    Bug(
        "files in manifests have the sequence number after that of their rows",
        ICEBERG + "metadata/entries.py",
        (("sequence_of(added), one.sequence)", "sequence_of(added), one.sequence + 1)"),),
        spark=("tests/iceberg/test_entries.py", "-k", "data_file"),
    ),
)
