"""Bugs of what reads and writes rows: workers, Spark's catalog, tools."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

CATALOG = "worker/spark_catalog/src/main/java/io/laketx/spark/"

BUGS: Final = (
    Bug(
        "the block of a Bloom filter is chosen by the wrong half of the hash",
        "worker/files/bloom_filters.py",
        (("((hashes >> np.uint64(32)) * np", "((hashes & np.uint64(0xFFFFFFFF)) * np"),),
        own_tests=("tests/arrow/test_bloom_filters.py", "-k", "every_value"),
    ),
    Bug(
        "a filter of a column's old type is asked for values of the new one",
        "worker/arrow/scan/row_groups.py",
        (
            (" or stored.field(names[0]).type != field.type", ""),
            ("chunk.physical_type != kind or may_have", "may_have"),
        ),
        own_tests=("tests/arrow/test_bloom_filters.py", "-k", "widened"),
    ),
    Bug(
        "a compaction writes a value anew that changed in storage",
        "worker/services/compaction/file_io.py",
        (("memory_bytes, checks_pages=True)", "memory_bytes)"),),
        own_tests=("tests/arrow/test_deep_checks.py", "-k", "changed_in_storage"),
    ),
    Bug(
        "pages that are read in parts are not compared with their checksums",
        "worker/arrow/scan/file_rows.py",
        (("in_pages(source.stream, checks_pages=source.checks_pages)", "in_pages(source.stream)"),),
        own_tests=("tests/arrow/test_deep_checks.py", "-k", "changed_in_storage"),
    ),
    Bug(
        "a file of few rows has bounds of a column with NaN",
        "worker/files/parquet_options.py",
        (("strict=True) if has_nan(values))", "strict=True) if False)"),),
        own_tests=("tests/unit/test_bounds.py", "-k", "few_rows"),
    ),
    Bug(
        "a renamed column loses its Bloom filter",
        "metaservice/core/table/meta.py",
        (
            (
                "properties = follow_columns(self.columns, before.columns, properties",
                "follow_columns(self.columns, before.columns, properties",
            ),
        ),
        own_tests=("tests/arrow/test_bloom_filters.py", "-k", "widened"),
    ),
    Bug(
        "the other processes of a compaction continue after one of them was killed",
        "worker/services/compaction/processes.py",
        (("                for child in self._running:\n                    child.kill()\n", ""),),
        own_tests=("tests/arrow/test_compaction_processes.py", "-k", "killed_child", "--timeout", "60"),
    ),
    Bug(
        "rows chosen in small files come after those of a large one that follows",
        "worker/arrow/scan/small_files.py",
        (("(parts is None or size >= most)", "size >= most"),),
        own_tests=("tests/arrow/test_small_files.py",),
    ),
    Bug(
        "the last run of small files is not read",
        "worker/arrow/scan/small_files.py",
        (("for begin in range(0, len(sources), count)]", "for begin in range(0, len(sources) - count, count)]"),),
        own_tests=("tests/arrow/test_small_files.py",),
    ),
    Bug(
        "threads of a client live on while the interpreter ends",
        "metaservice/client/threads.py",
        (("@atexit.register\n", ""),),
        own_tests=("tests/arrow/test_program_end.py",),
    ),
    Bug(
        "an insert by Spark doesn't declare what its rows read of its table",
        CATALOG + "write/StatementReads.java",
        (
            (
                "for (TableRead one : besides) found.add(",
                "for (TableRead one : besides) if (one == null) found.add(",
            ),
        ),
        own_tests=("tests/spark/test_plan_reads.py", "-k", "next_number"),
    ),
    Bug(
        "an insert without Spark doesn't declare what its rows read of its table",
        "worker/commit/rows_read.py",
        (("noted = [read for read in notes.all() if read.source.table.table_id == table.table_id]", "noted = []"),),
        own_tests=("tests/arrow/test_rows_read.py", "-k", "next_number"),
    ),
    Bug(
        "an insert that read its table is resubmitted",
        "worker/commit/transaction.py",
        (("is_blind = all(write.is_blind_insert for write in writes)", "is_blind = True"),),
        own_tests=("tests/arrow/test_rows_read.py", "-k", "not_resubmitted"),
    ),
    Bug(
        "a write by Spark forgets its application's version",
        CATALOG + "write/WriteTransaction.java",
        (("    if (change.getAppVersionsCount() == 0) change.addAllAppVersions(options.appVersions());\n", ""),),
        own_tests=("tests/spark/test_sql_write_options.py", "-k", "application_version"),
    ),
    Bug(
        "a MERGE that compares more than the key counts as a look-up of it",
        CATALOG + "write/SparkPlans.java",
        (
            (
                "    if (sources == null) return false;\n    for (MergeRows",
                "    if (sources == null) return true;\n    for (MergeRows",
            ),
        ),
        own_tests=("tests/spark/test_moves.py", "-k", "keys_that_it"),
    ),
    Bug(
        "an INSERT by Spark leaves the row of its key in another partition",
        CATALOG + "write/SpanningRows.java",
        (("if (there.equals(now.place)) continue;", "if (!there.equals(now.place)) continue;"),),
        own_tests=("tests/spark/test_moves.py", "-k", "unique_across_partitions and row_level"),
    ),
    Bug(
        "an INSERT by Spark sets the columns that its rows lack, too",
        CATALOG + "write/LakeWrite.java",
        (
            (
                "if (isInsert && snapshot.isPartial()) sets = setColumns();",
                "if (isInsert && snapshot.isPartial()) setColumns();",
            ),
        ),
        own_tests=("tests/spark/test_partial_updates.py", "-k", "that_it_gives"),
    ),
    Bug(
        "a MERGE puts one new key into two partitions",
        CATALOG + "write/Moves.java",
        (("    if (isNew && added != null && !added.add", "    if (isNew && added == null && !added.add"),),
        own_tests=("tests/spark/test_moves.py", "-k", "two_rows_of"),
    ),
    Bug(
        "a write by Spark forgets its message",
        CATALOG + "write/TransactionBegin.java",
        (("        .setCommitMessage(options.message())\n", ""),),
        own_tests=("tests/spark/test_sql_write_options.py", "-k", "message"),
    ),
    Bug(
        "of two rows with one key the older row wins",
        CATALOG + "write/Spread.java",
        (("SortDirection.DESCENDING, NullOrdering.NULLS_LAST", "SortDirection.ASCENDING, NullOrdering.NULLS_FIRST"),),
        own_tests=("tests/spark/test_sql_write_options.py", "-k", "newest_row"),
    ),
    Bug(
        "a strict write by Spark checks only the casts of the key",
        CATALOG + "write/Casts.java",
        (("boolean areAllStrict = options.areCastsStrict(meta);", "boolean areAllStrict = false;"),),
        own_tests=("tests/spark/test_sql_write_options.py", "-k", "strict"),
    ),
    Bug(
        "an overwrite of named partitions accepts rows of any partition",
        CATALOG + "write/LakeWrite.java",
        (
            (
                "      if (known.contains(PartitionKey.of(one.getPartition()))) continue;\n",
                "      if (!known.isEmpty()) continue;\n",
            ),
        ),
        own_tests=("tests/spark/test_bad_input.py", "-k", "only_rows_tell"),
    ),
    Bug(
        "a write of Python begins at the head, not at the version that it was planned from",
        "worker/commit/writes.py",
        (("            read_version=self.begins_at,\n", "            read_version=self.read_version,\n"),),
        own_tests=("tests/arrow/test_begins.py",),
    ),
    Bug(
        "pyarrow cuts the values of a list of dicts to the column's type",
        "worker/arrow/write/python_rows.py",
        (("    return _mixed(values, target)\n", "    return pa.array(values, target_type)\n"),),
        own_tests=("tests/arrow/test_given_values.py", "-k", "cuts_a_value"),
    ),
    Bug(
        "a change in a transaction sees the newest version",
        "worker/dataframes/catalog_writes.py",
        (
            (
                "        options[VERSION] = str(min(version, int(write.options.get(VERSION, version))))\n",
                "        pass\n",
            ),
        ),
        own_tests=("tests/spark/test_many_tables.py", "-k", "version_of_its_transaction"),
    ),
    Bug(
        "a merge by partitions overlooks rows of the partition that is NULL",
        "worker/dataframes/merge_reads.py",
        (("    return filled | sf.col(name).isNull() if None in values else filled\n", "    return filled\n"),),
        own_tests=("tests/spark/test_moves.py", "-k", "null_with_null"),
    ),
    Bug(
        "a partition's time without a zone is read as UTC",
        "worker/base/values.py",
        (("moment.replace(tzinfo=zone)", "moment.replace(tzinfo=UTC)"),),
    ),
    Bug(
        "the partitions 1.5 and 1.50 are different",
        "worker/base/values.py",
        (("    if value.decimal:\n", "    if False:\n"),),
        own_tests=("tests/spark/test_decimal_partitions.py",),
    ),
    Bug(
        "a clustering loses the rows that equal the end of a range",
        "worker/services/compaction/sorted_output.py",
        (("yield from run.up_to(end, with_equal=True)", "yield from run.up_to(end, with_equal=False)"),),
        own_tests=("tests/arrow/test_clustering.py", "-k", "order_holds"),
    ),
    Bug(
        "a merge treats the loaded part of a file as the whole file",
        "worker/services/compaction/sorted_merge.py",
        (("return self._read == self.rows", "return True"),),
        own_tests=("tests/spark/test_jobs_tasks.py", "-k", "dict_says"),
    ),
    Bug(
        "a compaction's footers bound floats that hold NaN",
        "worker/files/parquet_options.py",
        (("not (pa.types.is_nested(field.type) or path in nan)", "not pa.types.is_nested(field.type)"),),
    ),
    Bug(
        "conditions on floats are pushed down into Parquet files",
        CATALOG + "read/Shapes.java",
        (("return !(type instanceof FloatType || type instanceof DoubleType);", "return true;"),),
        own_tests=("tests/spark/test_pruning.py", "-k", "no_match and not any"),
    ),
    Bug(
        "hidden rows of a file are cached without regard to the files that hide them",
        "worker/spark_catalog/src/main/java/io/laketx/spark/read/HiddenRows.java",
        (("for (String one : newer) add(digest, one);", ""),),
        own_tests=("tests/spark/test_sql_reads.py", "-k", "found_once or histories"),
    ),
    Bug(
        "a field's name in older files ends at a dot inside its backticks",
        CATALOG + "WireTypes.java",
        (("    return unquoted(last);", "    return path.substring(path.lastIndexOf('.') + 1);"),),
        own_tests=("tests/spark/test_sql_reads.py", "-k", "fields_of_structs"),
    ),
    Bug(
        "the purge accepts the mark of any service",
        "worker/files/warehouse.py",
        (("if mark.service_id != recorded.service_id:", "if not mark.service_id:"),),
    ),
    Bug(
        "a restored service accepts the mark of its previous history",
        "worker/files/warehouse.py",
        (("if mark.history_epoch != recorded.history_epoch:", "if not mark.history_epoch:"),),
    ),
    Bug(
        "a row that SQL moves replaces the row that has its key",
        CATALOG + "write/Landings.java",
        (("if (!landed.contains(key)) continue;", "if (landed.contains(key) || landed.isEmpty()) continue;"),),
        own_tests=("tests/spark/test_sql_moves.py", "-k", "key_is_free"),
    ),
    Bug(
        "an overwrite by a condition accepts rows of any partition",
        CATALOG + "write/PartitionCondition.java",
        (
            (
                "if (!covered.containsKey(PartitionKey.of(partition)) && !holds(partition)) {",
                "if (covered.isEmpty()) {",
            ),
        ),
        own_tests=("tests/spark/test_statements.py", "-k", "partitions"),
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
        own_tests=("tests/spark/test_sql_transactions.py", "-k", "see_one_version"),
    ),
    Bug(
        "the optimiser uses the bounds of some files as bounds of all files",
        CATALOG + "read/ColumnBounds.java",
        (("        isBounded = false;\n        return;\n", "        return;\n"),),
        own_tests=("tests/spark/test_sql_statistics.py", "-k", "cut_strings"),
    ),
    Bug(
        "an increment by SQL shows the removal of an updated row's old image as a delete",
        CATALOG + "changes/BucketReader.java",
        (("if (!images.contains(id)) compare(", "compare("),),
        own_tests=("tests/spark/test_sql_changes.py", "-k", "random_histories"),
    ),
    Bug(
        "a stream that stopped within a commit reads that commit again from its start",
        CATALOG + "changes/Position.java",
        (("return isPart() && asked == version ? files : 0;", "return isSnapshot && asked == version ? files : 0;"),),
        own_tests=("tests/spark/test_sql_stream_sources.py", "-k", "how_much"),
    ),
    Bug(
        "a stream doesn't protect the versions that it has not read",
        CATALOG + "changes/StreamMark.java",
        (
            ("    advance(Math.max(version, kept));\n", "    end();\n"),
            ("if (!isTemporary || cursor == null)", "if (cursor == null)"),
        ),
        own_tests=("tests/spark/test_stream_kills.py", "-k", "once"),
    ),
    Bug(
        "a batch that Spark repeats is committed again",
        CATALOG + "write/StreamedWrite.java",
        (("            .addAppVersions(app)\n            .setPrincipal", "            .setPrincipal"),),
        own_tests=("tests/spark/test_sql_stream_sinks.py", "-k", "repeats"),
    ),
    Bug(
        "the shell uses a server's catalog even if another lake was named",
        "laketx/commands/sql.py",
        (("if is_named and running != lake:", "if is_named and not running:"),),
        own_tests=("tests/spark/test_sql_remote.py", "-k", "another_lake"),
    ),
    Bug(
        "the jar of a wheel is not found",
        "worker/spark/catalog_jar.py",
        (("places.append(Path(wheel.origin).parent)", "places.append(Path(wheel.origin))"),),
        own_tests=("tests/integration/test_wheels.py", "-k", "found"),
    ),
    Bug(
        "Spark SQL shows rows that a delete set hides",
        CATALOG + "read/Hides.java",
        (("1 - (int) ((words[word] >>> position) & 1)", "1"),),
        own_tests=("tests/spark/test_sql_rows.py", "-k", "history and False-True"),
    ),
    Bug(
        "the last row of a file can't be hidden from Spark SQL",
        CATALOG + "read/RowIds.java",
        (("long last = first + rows - 1;", "long last = first + rows - 2;"),),
        own_tests=("tests/spark/test_sql_reads.py", "-k", "histories"),
    ),
    Bug(
        "a MERGE by Spark SQL doesn't declare its reads",
        CATALOG + "write/StatementReads.java",
        (("for (TableRead one : changed) {", "for (TableRead one : changesAll ? changed : List.<TableRead>of()) {"),),
        own_tests=("tests/spark/test_sql_rows.py", "-k", "merge_loses"),
    ),
    Bug(
        "a write of Spark SQL begins at the head when its first task is made",
        CATALOG + "write/TransactionBegin.java",
        (("intent.setReadVersion(readVersion);", "intent.clearReadVersion();"),),
        own_tests=("tests/spark/test_sql_isolation.py", "-k", "began_when"),
    ),
    Bug(
        "a subquery of Spark SQL doesn't count as a read",
        CATALOG + "write/PlanScans.java",
        (
            ("    for (Object one : CollectionConverters.asJava(plan.subqueries())) look((QueryPlan<?>) one);\n", ""),
            ("    for (QueryPlan<?> one : CollectionConverters.asJava(plan.innerChildren())) look(one);", "    //"),
        ),
        own_tests=("tests/spark/test_sql_isolation.py", "-k", "a_subquery"),
    ),
    Bug(
        "an INSERT of Spark SQL that read its table is resubmitted instead of run again",
        CATALOG + "write/WriteTransaction.java",
        (("return policy != ConflictPolicy.FAIL && isBlind;", "return policy != ConflictPolicy.FAIL;"),),
        own_tests=("tests/spark/test_sql_isolation.py", "-k", "rerun_computes"),
    ),
    Bug(
        "a restore by SQL that lost never runs again",
        CATALOG + "procedures/Changing.java",
        (("        Reruns.pause(policy, attempt, lost);\n", "        throw lost;\n"),),
        own_tests=("tests/spark/test_sql_reruns.py", "-k", "restore_runs"),
    ),
    Bug(
        "a statement of Spark SQL whose version is retired before its plan fails",
        CATALOG + "read/Snapshot.java",
        (
            (
                'if (!error.reason().equals("VERSION_RETIRED")) throw error;',
                "if (!error.reason().isEmpty()) throw error;",
            ),
        ),
        own_tests=("tests/spark/test_sql_retired.py",),
    ),
    Bug(
        "an INSERT's reads don't count under maxcompute",
        "metaservice/core/commit/judged_change.py",
        ((" or change.operation is Operation.INSERT  # on what it read", ""),),
        own_tests=("tests/unit/test_core_traps.py", "-k", "judged_by_what_it_read"),
    ),
    Bug(
        "a MERGE whose condition tests more than the key runs as an insert by key",
        CATALOG + "write/SparkPlans.java",
        (("    if (!isWhole(join.left())) return null;\n", ""),),
        own_tests=("tests/spark/test_sql_rows.py", "-k", "reads_no_rows"),
    ),
    Bug(
        "files whose partition is NULL are left out by NOT (partition <=> value) in Spark SQL",
        CATALOG + "read/Conditions.java",
        (("equal == null ? null : allOf(List.of(equal, not(isNull(column.getName()))))", "equal"),),
        own_tests=("tests/spark/test_statements.py", "-k", "partition_values"),
    ),
    Bug(
        "rows that a delete set hides are shown without Spark",
        "worker/arrow/scan/version_rows.py",
        (("hidden=None), hidden=positions)", "hidden=None))"),),
        own_tests=("tests/arrow/test_version_rows.py",),
    ),
    Bug(
        "a file of an image and of a row without an id of its own is left out if the image is hidden",
        "worker/arrow/scan/plans.py",
        (("return carries and file.rows == 1 and file", "return carries and file"),),
        own_tests=("tests/arrow/test_repeated_updates.py",),
    ),
    Bug(
        "NaN is not above every number in a condition without Spark",
        "worker/arrow/expressions/conditions.py",
        (("return compared | is_nan if compare in (gt, ge) else compared", "return compared"),),
        own_tests=("tests/arrow/test_version_rows.py",),
    ),
    Bug(
        "an increment without Spark leaves out the rows that a restore brought back",
        "worker/arrow/changes/change_rows.py",
        (("*images, *self._tombstones(), *self._states()]", "*images, *self._tombstones()]"),),
        own_tests=("tests/arrow/test_change_rows.py",),
    ),
    Bug(
        "a row that is written without Spark goes into another bucket than Spark's",
        "worker/files/bucket_hash.py",
        (("return row_hashes(keys) % np.int64(buckets)", "return np.abs(row_hashes(keys)) % np.int64(buckets)"),),
        own_tests=("tests/spark/test_arrow_writes.py", "-k", "one_bucket"),
    ),
    Bug(
        "bounds of an inlined file of few rows leave out its largest value",
        "worker/arrow/write/inlined_files.py",
        (("min(present), max(present)", "min(present), min(present)"),),
        own_tests=("tests/arrow/test_inlined.py", "-k", "entries_say"),
    ),
    Bug(
        "bounds of an inlined file of many rows leave out its largest value",
        "worker/arrow/write/inlined_files.py",
        (('extremes["max"]', 'extremes["min"]'),),
        own_tests=("tests/arrow/test_inlined.py", "-k", "entries_say"),
    ),
    Bug(
        "an inlined file among many has the partition of another",
        "worker/arrow/write/inlined_files.py",
        (("values.take(pa.array(begins))", "values.slice(0, len(begins))"),),
        own_tests=("tests/arrow/test_inlined.py", "-k", "many_parts or many_partitions"),
    ),
    Bug(
        "an inlined file among many has the rows of another",
        "worker/arrow/scan/inlined_rows.py",
        (("begins = [len(head), *ends]", "begins = [len(head), *([len(head)] * len(ends))]"),),
        own_tests=("tests/arrow/test_inlined.py", "-k", "many_parts or many_partitions"),
    ),
    Bug(
        "a stream of rows that lost a race is committed without them",
        "worker/commit/transaction.py",
        (("        if write.are_rows_once:\n", "        if False:\n"),),
        own_tests=("tests/arrow/test_writes.py", "-k", "without_its_rows"),
    ),
    Bug(
        "a merge without Spark sees no rows of the table that have no source row",
        "worker/arrow/write/merge.py",
        (("near = TRUE if reads_all else _near(", "near = _near("),),
        own_tests=("tests/arrow/test_changes.py", "-k", "append_tables"),
    ),
    Bug(
        "an update without Spark moves a row onto the key of another one",
        "worker/arrow/write/updates.py",
        (("    if len(taken):\n", "    if False:\n"),),
        own_tests=("tests/arrow/test_changes.py", "-k", "land_on_no_other"),
    ),
    Bug(
        "an empty text of CSV is loaded as NULL",
        "worker/formats/csv_records.py",
        (("quoted_strings_can_be_null=False", "quoted_strings_can_be_null=True"),),
        own_tests=("tests/arrow/test_csv_records.py",),
    ),
    Bug(
        "a decimal with too many digits is loaded as another number",
        "worker/formats/text_parser.py",
        (('whole = rf"[0-9]{{1,{digits}}}" if digits', 'whole = "[0-9]+" if digits'),),
        own_tests=("tests/arrow/test_from_texts.py",),
    ),
    Bug(
        "the purge gives up a staged table that has been created",
        "worker/services/staged_tables.py",
        (
            (
                "        except AlreadyExistsError:\n            return False\n",
                "        except AlreadyExistsError:\n            return True\n",
            ),
        ),
        own_tests=("tests/iceberg/test_staged_tables.py", "-k", "never_dropped"),
    ),
    Bug(
        "of inlined files that are read together the oldest rows win",
        "worker/arrow/scan/bucket_vectors.py",
        (
            (
                "newer.sort(key=lambda scanned: -scanned.data_version)",
                "newer.sort(key=lambda scanned: scanned.data_version)",
            ),
        ),
        own_tests=("tests/arrow/test_inlined.py", "-k", "together"),
    ),
    Bug(
        "files of Spark have no field ids for elements of arrays",
        CATALOG + "write/FieldIds.java",
        (("ids.containsKey(below) ? part.withId(ids.get(below)) : part", "part"),),
        own_tests=("tests/spark/test_field_ids.py",),
    ),
    Bug(
        "a session's Parquet settings apply to files of Spark SQL",
        CATALOG + "write/ParquetOut.java",
        (("      for (String[] one : SETTINGS) job.getConfiguration().set(one[0], one[1]);", "     "),),
        own_tests=("tests/spark/test_session.py", "-k", "whatever"),
    ),
    Bug(
        "kept deletion vectors of an older version serve a newer one",
        "worker/files/kept_vectors.py",
        (("for minus, path in newer)]", "for minus, path in newer[-1:])]"),),
        own_tests=("tests/arrow/test_kept_vectors.py", "-k", "other_newer_files or whenever"),
    ),
    Bug(
        "kept deletion vectors of one file hide rows of another",
        "worker/arrow/scan/bucket_vectors.py",
        (("    return scanned.data_version, scanned.file.path\n", '    return scanned.data_version, ""\n'),),
        own_tests=("tests/arrow/test_kept_vectors.py", "-k", "two_files or whenever"),
    ),
    Bug(
        "kept deletion vectors are used under a name that isn't theirs",
        "worker/files/kept_vectors.py",
        (("if body[:begin] != MAGIC + bytes.fromhex(name):", "if not body.startswith(MAGIC):"),),
        own_tests=("tests/arrow/test_kept_vectors.py", "-k", "damaged"),
    ),
    Bug(
        "the purge forgets kept deletion vectors",
        "worker/services/purge.py",
        (("            self._sweep_found(pool, generated, self._unused_vectors)\n", ""),),
        own_tests=("tests/arrow/test_kept_vectors.py", "-k", "purge"),
    ),
    Bug(
        "the purge deletes deletion vectors that the newest version uses",
        "worker/services/purge.py",
        (("if PurePosixPath(path).stem not in used]", "if used is not None]"),),
        own_tests=("tests/arrow/test_kept_vectors.py", "-k", "purge"),
    ),
    Bug(
        "Spark uses damaged deletion vectors",
        CATALOG + "read/KeptVectors.java",
        (
            (
                "!Arrays.equals(digest.digest(), 0, DIGEST_BYTES, content, end, content.length)",
                "content.length == 0",
            ),
        ),
        own_tests=("tests/spark/test_kept_vectors.py", "-k", "wrong_ones"),
    ),
    Bug(
        "Spark uses deletion vectors of a file that was older",
        CATALOG + "read/KeptVectors.java",
        (
            ("bitmaps.put(new File(dataVersion, path)", "bitmaps.put(new File(0, path)"),
            ("bitmaps.get(new File(one.dataVersion, one.path))", "bitmaps.get(new File(0, one.path))"),
        ),
        own_tests=("tests/spark/test_kept_vectors.py", "-k", "wrong_ones"),
    ),
    Bug(
        "Spark reads nothing of keys that was written since the index",
        CATALOG + "read/Plan.java",
        (
            (
                "request.setKeyFiles(keyFiles);",
                "request.setKeyFiles(keyFiles.toBuilder().setVersion(snapshot.version()));",
            ),
        ),
        own_tests=("tests/spark/test_key_index.py", "-m", "not long", "-k", "came_since or no_answer"),
    ),
    Bug(
        "Spark believes a key index whose layer is gone",
        CATALOG + "keys/KeyIndex.java",
        (
            (
                '      LOG.debug("a key index can\'t be read: {}", gone.getMessage());\n      return null;\n',
                '      LOG.debug("a key index can\'t be read: {}", gone.getMessage());\n',
            ),
        ),
        own_tests=("tests/spark/test_key_index.py", "-k", "damaged"),
    ),
    Bug(
        "Spark reads blocks of a key index without looking at their digests",
        CATALOG + "keys/KeyLayer.java",
        (("if (digest != digests[block])", "if (digests.length == 0)"),),
        own_tests=("tests/spark/test_key_index.py", "-k", "damaged"),
    ),
    Bug(
        "an INSERT of Spark reads no files that the key index doesn't cover",
        CATALOG + "write/IndexedPlaces.java",
        (("    for (String path : left) found.others.add(live.get(path).alone);\n", ""),),
        own_tests=("tests/spark/test_key_index.py", "-m", "not long", "-k", "reads_what or no_answer"),
    ),
    Bug(
        "an INSERT of Spark finds no key that has two images in its partition",
        CATALOG + "write/IndexedPlaces.java",
        (("other.version > file.version", "other.version != file.version"),),
        own_tests=("tests/spark/test_key_index.py", "-m", "not long", "-k", "covers or no_answer"),
    ),
    Bug(
        "an upsert leaves the row of its key in another partition",
        "worker/arrow/write/key_lookups.py",
        (("if len(gone) else delta", "if len(gone) > len(delta) else delta"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "has_one_row"),
    ),
    Bug(
        "an overwrite of partitions takes a key that lives in another one",
        "worker/arrow/write/writes.py",
        (("if spans and not scope.all:", "if spans and named:"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "has_one_row"),
    ),
    Bug(
        "the row id after the one that is wanted counts as it",
        "worker/files/position_blocks.py",
        (("near[numbers[near] == sought[:count]]", "near"),),
        own_tests=("tests/arrow/test_chosen_rows.py",),
    ),
    Bug(
        "increments tell a row that moves as one that goes and one that comes",
        "worker/arrow/changes/change_rows.py",
        (("() if self._is_unique() else meta.partition_columns", "meta.partition_columns"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "has_one_row"),
    ),
    Bug(
        "fsck passes a key that is there twice",
        "worker/services/key_check.py",
        (("names if by_partition else keys", "names"),),
        own_tests=("tests/arrow/test_keys_across.py", "-k", "fsck"),
    ),
    Bug(
        "a look-up of few keys finds an older image",
        "worker/arrow/write/key_lookups.py",
        (
            (
                'places.lazy().sort(VERSION).unique(_places(meta), keep="last")',
                'places.lazy().sort(VERSION, descending=True).unique(_places(meta), keep="last")',
            ),
        ),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "has_one_row or by_their_keys"),
    ),
    Bug(
        "a look-up of few keys finds rows that were deleted",
        "worker/arrow/write/key_lookups.py",
        ((".filter(pl.col(OP) != TOMBSTONE)", ""),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "by_their_keys"),
    ),
    Bug(
        "a look-up of many keys finds none in the partition of NULL",
        "worker/arrow/write/key_lookups.py",
        ((" and not keys.column(name).null_count", ""),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "of_null"),
    ),
    Bug(
        "of long keys the longest is above the bound by which files are chosen",
        "worker/base/values.py",
        (("return _text(value, is_max=is_max)[0] if", "return _text(value, is_max=False)[0] if"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "longer_than"),
    ),
    Bug(
        "a look-up takes all inlined rows that it reads together",
        "worker/arrow/write/key_lookups.py",
        (("    return lambda rows: rows.filter(condition)", "    return lambda rows: rows"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "many_keys_of_several or other_keyed"),
    ),
    Bug(
        "a look-up of one key compares one of its columns",
        "worker/arrow/write/key_lookups.py",
        (("reduce(pc.and_, [", "reduce(lambda one, _: one, ["),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "whatever_its_types or other_keyed"),
    ),
    Bug(
        "a look-up of one key finds none in the partition of NULL",
        "worker/arrow/write/key_lookups.py",
        ((" if value.is_valid else pc.is_null(rows.column(name))", ""),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "by_their_keys"),
    ),
    Bug(
        "a look-up whose files were purged fails",
        "worker/arrow/write/key_lookups.py",
        (("except FileNotFoundError:", "except FileExistsError:"),),
        own_tests=("tests/arrow/test_retired.py", "-k", "look_up"),
    ),
    Bug(
        "a key index is believed about files that it doesn't cover",
        "worker/arrow/scan/key_places.py",
        (("if path in left or scanned", "if not index.layers.get(bucket) or scanned"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "older_index"),
    ),
    Bug(
        "a look-up by the key index shows an older image of another key",
        "worker/arrow/scan/key_files.py",
        (("return None if living & older else living", "return living"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "have_the_rows"),
    ),
    Bug(
        "a look-up by the key index takes an older image for the newest",
        "worker/arrow/scan/key_files.py",
        (("= max(best, this)", "= min(best, this)"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "have_the_rows"),
    ),
    Bug(
        "a look-up by the key index misses what was committed since",
        "metaservice/service/read/key_files.py",
        (("in range(key_files.version + 1, version + 1)", "in range(key_files.version + 2, version + 1)"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "changes_no_answer or plans_the_files"),
    ),
    Bug(
        "a look-up by the key index misses files that no layer covers",
        "worker/services/key_indexes.py",
        (("if file.inlined or file.external or file.path not in covered:", "if file.inlined or file.external:"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "lacks_no_file"),
    ),
    Bug(
        "what is known of another history is believed",
        "metaservice/service/read/planning.py",
        (("request.key_files.history != self._decider", '"" == self._decider'),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "plans_the_files"),
    ),
    Bug(
        "a layer of the key index that takes another one in forgets which of its images are tombstones",
        "worker/services/key_indexes.py",
        (("2 * number[is_wanted] + (part.numbers[is_wanted] & 1)", "2 * number[is_wanted]"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "that_are_merged"),
    ),
    Bug(
        "a layer of the key index that takes a damaged one in has a part of its images",
        "worker/services/key_indexes.py",
        (
            (
                "    except UNREADABLE:\n        return False\n    return at == len(taken)",
                "    except UNREADABLE:\n        pass\n    return True",
            ),
        ),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "made_anew"),
    ),
    Bug(
        "a damaged key index is believed",
        "worker/files/key_layer.py",
        (("if xxh64_intdigest(part) != int(layer.digests[block]):", "if not part:"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "damage"),
    ),
    Bug(
        "a tombstone of another key with the same hash hides where a key lives",
        "worker/arrow/write/key_lookups.py",
        (("if are_hashes_exact(meta) or not len(named):", "if len(named) >= 0:"),),
        own_tests=("tests/arrow/test_key_index.py", "-m", "not long", "-k", "same_hash"),
    ),
    Bug(
        "an image says by place, not by id, which columns it sets",
        "worker/arrow/write/partial_images.py",
        (
            (
                "columns_set = [column.column_id for column in others if column.name.lower() in names]",
                "columns_set = [at for at, column in enumerate(others, 2) if column.name.lower() in names]",
            ),
        ),
        own_tests=("tests/arrow/test_partial_updates.py", "-k", "by_what_its_id_says"),
    ),
    Bug(
        "what an image leaves as it is becomes NULL",
        "worker/arrow/scan/image_folds.py",
        (("np.where(starts | (counts & sets.has(ids[name])), at, -1)", "np.where(starts | counts, at, -1)"),),
        own_tests=("tests/arrow/test_image_folds.py",),
    ),
    Bug(
        "a check of keys compares those that stand side by side in the files alone",
        "worker/services/key_check.py",
        (("    hashes.sort()\n", ""),),
        own_tests=("tests/arrow/test_key_scope_checks.py", "-m", "not long"),
    ),
    Bug(
        "the keys of a file that was just written are those of the first rows",
        "worker/arrow/write/staged_rows.py",
        (("[part for _, part in by_part(placed, key)]", "[placed.slice(0, file.rows) for file in files]"),),
        own_tests=("tests/arrow/test_inlined.py", "-k", "each_file"),
    ),
    Bug(
        "a deep check takes the rows of a key in two partitions for one key twice",
        "worker/services/key_check.py",
        (("names if by_partition else keys", "keys"),),
        own_tests=("tests/arrow/test_deep_checks.py", "-m", "not long", "-k", "has_twice"),
    ),
    Bug(
        "a range of increments says that columns were set though a commit wrote the whole row",
        "worker/arrow/changes/change_rows.py",
        (("is_whole = np.logical_or.reduceat(each.are_whole, first)", "is_whole = np.zeros(len(first), bool)"),),
        own_tests=("tests/arrow/test_partial_updates.py", "-m", "not long", "-k", "as_a_dict_does"),
    ),
    Bug(
        "a minor compaction forgets what its images set",
        "worker/services/compaction/chunks.py",
        (("with_set=with_op and self.folds)", "with_set=False)"),),
        own_tests=("tests/arrow/test_partial_updates.py", "-m", "not long", "-k", "as_a_dict_does"),
    ),
    Bug(
        "an image after a tombstone is laid on the row before it, by Spark",
        f"{CATALOG}read/ImageFold.java",
        (("if (before.isGone()) return new Image(after.row, null);", "if (before.isGone()) return after;"),),
        own_tests=("tests/spark/test_partial_updates.py", "-m", "not long", "-k", "as_arrow_and_a_dict_do"),
    ),
    Bug(
        "increments of Spark show what an image leaves as it is as NULL",
        f"{CATALOG}changes/BucketReader.java",
        (("if (set != null && before != null)", "if (set != null && fold == null)"),),
        own_tests=("tests/spark/test_partial_updates.py", "-m", "not long", "-k", "as_arrow_and_a_dict_do"),
    ),
)
