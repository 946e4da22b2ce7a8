"""Bugs of branches and clones."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

SERVICE = "metaservice/service/"
PURGE = ("tests/branches/test_purge.py",)
HISTORIES = ("tests/branches/test_histories.py",)
DETACHING = ("tests/branches/test_detaching.py",)
MARKS = ("tests/branches/test_marks.py",)
NAMES = ("tests/branches/test_names.py",)
EVENTS = ("tests/branches/test_branch_events.py",)
TURNS = ("tests/branches/test_merge_turns.py",)
HELD = ("tests/branches/test_held_tables.py",)
ENDED_FORKS = ("tests/branches/test_ended_forks.py",)
READERS_VIEWS = ("tests/unit/test_readers_views.py",)
FORK_BOOK = ("tests/unit/test_fork_book.py",)
OF_SERVICE = ("tests/branches/test_service.py",)
REFRESH = ("tests/branches/test_refresh.py",)
MERGE_ALONE = ("tests/branches/test_only_by_merge.py",)
REPLAYS = ("tests/branches/test_replays.py",)
SCHEMA_OF_FILES = ("tests/branches/test_columns.py",)
MERGED_COLUMNS = ("tests/unit/test_merged_columns.py",)
CONFLICTS = ("tests/branches/test_conflicts.py",)
SIMULATION = ("tests/simulation/test_simulation.py",)
CATALOG = "worker/spark_catalog/src/main/java/io/laketx/spark/"
IN_SPARK = ("tests/spark/test_branches.py",)
ICEBERG = ("tests/iceberg/test_branches.py",)
ICEBERG_FILES = ("tests/iceberg/test_branch_files.py",)

BUGS: Final = (
    Bug(
        "a branch shows a clone that was made later",
        "metaservice/service/decider/forking.py",
        ((" and (fork is None or fork.is_there(time_us))", ""),),
        own_tests=("tests/branches/test_names.py", "-m", "not long"),
    ),
    Bug(
        "a branch that was made while a table was dropped shows the table",
        "metaservice/service/table/catalog.py",
        (("        self._hide_on_branches(table)\n", ""),),
        own_tests=("tests/branches/test_names.py", "-m", "not long"),
    ),
    Bug(
        "after a start it shows the table that came back",
        "metaservice/service/decider/state.py",
        (("            self.undropped[key[1:]] = keys.decode_version(raw_time)\n", "            pass\n"),),
        own_tests=("tests/branches/test_names.py", "-m", "not long"),
    ),
    Bug(
        "after a start a branch may be as old as the return of a table",
        "metaservice/service/decider/state.py",
        (("        self.newest_us = max(self.newest_us, *self.undropped.values(), 0)\n", ""),),
        own_tests=("tests/branches/test_names.py", "-m", "not long"),
    ),
    Bug(
        "a branch lists a clone that was made later",
        "metaservice/service/table/branch_listing.py",
        (("not is_there(self._state, table.raw_id, table.fork, branch.time_us)", "False"),),
        own_tests=("tests/branches/test_names.py", "-m", "not long"),
    ),
    Bug(
        "after a start a branch may be as old as a clone",
        "metaservice/service/decider/state.py",
        (("made_us = 0 if table.fork is None else table.fork.made_us", "made_us = 0"),),
        own_tests=("tests/branches/test_names.py", "-m", "not long"),
    ),
    Bug(
        "a clone lets go of files that a held version of it shows",
        SERVICE + "retention/detaching.py",
        (("        (own_past, prefix_end(own_past), True),\n", ""),),
        (*DETACHING, "-k", "holds"),
    ),
    Bug(
        "files that are being written to a clone are swept with the folder of its dropped table",
        SERVICE + "retention/sweeping.py",
        (("_is_gone(state.store.cursor(), raw) and not self._has_clones(raw)", "_is_gone(state.store.cursor(), raw)"),),
        (*DETACHING, "-k", "beside"),
    ),
    Bug(
        "a fork shows entries that its parent added after the branch began",
        "metaservice/store/forks.py",
        (
            (
                "decode_stored(record[1]).added <= fork.version)\n",
                "decode_stored(record[1]).added <= fork.version + 1)\n",
            ),
        ),
        HISTORIES,
    ),
    Bug(
        "a fork forgets entries that its parent took out after the branch began",
        "metaservice/store/forks.py",
        (("_overlaid(self._taken_out_since(fork, start, end), records)", "records"),),
        HISTORIES,
    ),
    Bug(
        "a plan of a fork has entries that its parent added after the branch began",
        "metaservice/store/forks.py",
        (
            (
                "entry.added <= version:\n                    yield key",
                "entry.added <= version + 1:\n                    yield key",
            ),
        ),
        HISTORIES,
    ),
    Bug(
        "a plan of a fork lacks entries that its parent took out after the branch began",
        "metaservice/store/forks.py",
        (("_overlaid(taken_out, records)", "records"),),
        HISTORIES,
    ),
    Bug(
        "what was dropped on a branch counts as a table of it",
        SERVICE + "decider/names.py",
        (
            (
                "            del self._groups[group][name]\n            if not self._groups[group]:",
                "            if not self._groups[group]:",
            ),
        ),
        ("tests/unit/test_name_index.py",),
    ),
    Bug(
        "a fork takes a parent that has moved for one that has not",
        "metaservice/store/forks.py",
        (
            (
                "newest is None or newest[0] != keys.commit_key(fork.base, fork.version)",
                "newest is not None and newest[0] < keys.commit_key(fork.base, fork.version)",
            ),
        ),
        HISTORIES,
    ),
    Bug(
        "an entry that a fork took out comes back",
        SERVICE + "commit/outcomes.py",
        (('        batch.put(entry_keys.mask_of_live(live_key), b"")\n', "        pass\n"),),
        HISTORIES,
    ),
    Bug(
        "two forks give one row id to two rows",
        SERVICE + "commit/new_files.py",
        (("    if root is None:  # it was dropped\n", "    if root is None or table.fork is not None:\n"),),
        PURGE,
    ),
    Bug(
        "a merge is not judged against the parent's commits",
        SERVICE + "branch/replay.py",
        (("            conflict = judge(change, meta, winners, ahead)\n", "            conflict = None\n"),),
        CONFLICTS,
    ),
    Bug(
        "a merge forgets what a commit on the branch had read",
        "metaservice/store/records/branches.py",
        (("        reads_of(record.reads),\n", "        (),\n"),),
        CONFLICTS,
    ),
    Bug(
        "the parent's files of an ended branch are purged with it",
        SERVICE + "retention/purge.py",
        (
            (
                "    return is_of_base(cursor, raw, (entry.partition, entry.bucket), entry.path)\n",
                "    return False\n",
            ),
        ),
        PURGE,
    ),
    Bug(
        "files that a merge gave to the parent are purged with the branch",
        SERVICE + "retention/dropped_tables.py",
        (("fork.is_merged and added not in fork.left_out", "fork.is_merged and added in fork.left_out"),),
        PURGE,
    ),
    Bug(
        "a table gives up versions that a branch shows",
        SERVICE + "retention/housekeeping.py",
        (("branched_us is not None and branched_us < now_us - retain", "branched_us is not None and branched_us < 0"),),
        PURGE,
    ),
    Bug(
        "files that a branch restored from before it began are purged",
        SERVICE + "commit/outcomes.py",
        (("        if restored < fork.version and restored not in fork.holds:\n", "        if restored < 0:\n"),),
        PURGE,
    ),
    Bug(
        "a branch takes tables that were dropped on an earlier one of its name for its own",
        SERVICE + "decider/forking.py",
        (
            (
                "    return fork.branch == branch.name and fork.raw_id == ",
                "    return fork.branch == branch.name or fork.raw_id == ",
            ),
        ),
        OF_SERVICE,
    ),
    Bug(
        "a merge counts one restore of a file where there were two",
        SERVICE + "decider/state.py",
        (("self._restored_now.get(key) or self.store.get(key)", "self.store.get(key)"),),
        PURGE,
    ),
    Bug(
        "a table that was dropped on a branch is back after a refresh",
        SERVICE + "branch/refreshing.py",
        (("state.put_fork(replace(dropped, raw_id=raw_id, holds=(), is_gone=True))", "pass"),),
        REFRESH,
    ),
    Bug(
        "files that a pin holds of before a refresh are purged with the branch",
        SERVICE + "decider/fork_book.py",
        (("for raw_id in (fork.successor, *of_base)", "for raw_id in of_base"),),
        REFRESH,
    ),
    Bug(
        "a refreshed branch forgets what its commits had read",
        SERVICE + "commit/outcomes.py",
        (
            (
                "        if fork.branch and commit.change.logical:\n",
                "        if fork.branch and commit.rebased_over == 0:\n",
            ),
        ),
        REFRESH,
    ),
    Bug(
        "a merge purges what a clone of the branch's table shows",
        SERVICE + "retention/holders.py",
        (("        if versions:\n", "        if versions and raw_id == fork.base:\n"),),
        PURGE,
    ),
    Bug(
        "a table that takes commits by merges alone takes a restore",
        "metaservice/core/table/branches.py",
        (
            (
                "passes = operation in COMPACTIONS or operation is Operation.ALTER",
                "passes = operation in COMPACTIONS or operation in (Operation.ALTER, Operation.RESTORE)",
            ),
        ),
        MERGE_ALONE,
    ),
    Bug(
        "a transaction that was open when a table was protected commits to it",
        SERVICE + "commit/transactions.py",
        (("            check_direct(table.meta, change.operation, change.alteration)\n", ""),),
        MERGE_ALONE,
    ),
    Bug(
        "a limited branch holds none of its tables",
        SERVICE + "retention/housekeeping.py",
        (("if not named or is_among(table, named))", "if not named)"),),
        ("tests/branches/test_limits.py",),
    ),
    Bug(
        "a client that doesn't know forks writes into the wrong folder",
        SERVICE + "commit/admission.py",
        (
            (
                "operation is not Operation.ALTER and FORKS not in client_features",
                "operation is Operation.ALTER and FORKS not in client_features",
            ),
        ),
        OF_SERVICE,
    ),
    Bug(
        "a merge judges a commit as if those before it on the branch were not there",
        SERVICE + "branch/replay.py",
        (("            ahead.then(decision)\n", ""),),
        SIMULATION,
    ),
    Bug(
        "a branch shows its parent as it was before the newest commit, when the clock went back",
        SERVICE + "branch/branches.py",
        (("    instant = max([*times_us, state.newest_us, *names_us, *fresh])\n", "    instant = max(times_us)\n"),),
        SIMULATION,
    ),
    Bug(
        "a branch that is made in the group of a merge's last turn begins before the merge",
        SERVICE + "decider/state.py",
        (
            (
                "        self.newest_us = max([self.newest_us, *(view.time_us for view in other.views.values())])",
                "        pass",
            ),
        ),
        own_tests=("tests/simulation/test_simulation.py", "-k", "merges_change_their_tables and 0-6"),
    ),
    Bug(
        "a branch that was refreshed lacks tables that are newer than the clock",
        SERVICE + "branch/refreshing.py",
        (("instant_from(state, refreshed.time_us, now_us)", "max(refreshed.time_us, now_us)"),),
        own_tests=("tests/branches/test_names.py", "-k", "meanwhile"),
    ),
    Bug(
        "a commit of the parent gets a time that a branch shows already",
        SERVICE + "branch/branches.py",
        (("    state.note_answered(instant)\n    return instant\n", "    return instant\n"),),
        SIMULATION,
    ),
    Bug(
        "a merge gets a time before that of the parent's newest commit",
        SERVICE + "branch/branch_replay.py",
        (("next_commit_time(self._clocks.now_us(), last_us, state.answered_us)", "self._clocks.now_us()"),),
        SIMULATION,
    ),
    Bug(
        "a merge is done again when its answer was lost",
        SERVICE + "branch/branch_replay.py",
        (("        self._state.txns.put(txn)\n", ""),),
        SIMULATION,
    ),
    Bug(
        "an INSERT on a branch goes to the table that an earlier statement saw in the lake",
        CATALOG + "LakeCatalog.java",
        (
            ("    return looks.known(branch.on(ident));\n", "    return looks.known(ident);\n"),
            ("    looks.keep(whole, newest);\n", "    looks.keep(ident, newest);\n"),
        ),
        IN_SPARK,
    ),
    Bug(
        "what the Iceberg catalog generated of living forks is swept",
        SERVICE + "retention/sweeping.py",
        (("{path for path in left if fork_of(path) in forks}", "set[str]()"),),
        ICEBERG_FILES,
    ),
    Bug(
        "what the Iceberg catalog generates of a fork lies among the files of its root",
        "worker/services/generated_files.py",
        (("if meta.folder_id else FOLDER", "if not meta.folder_id else FOLDER"),),
        ICEBERG_FILES,
    ),
    Bug(
        "Iceberg's clients on a branch see and write main",
        "worker/iceberg/rest/warehouses.py",
        (('return f"{name}{AT}{self.branch}" if self.branch else name', "return name"),),
        ICEBERG,
    ),
    Bug(
        "a stranger sees tables that were made on the parent of a branch",
        "metaservice/rpc/auth/request_checks.py",
        (("        name = on_branch(off_branch(name), branch.parent)", "        name = off_branch(name)"),),
        OF_SERVICE,
    ),
    Bug(
        "a merge changes a table whose checks nobody ran",
        SERVICE + "branch/merging.py",
        (("        refuse_unchecked(merged, request.checked)\n", ""),),
        OF_SERVICE,
    ),
    Bug(
        "a check with several rows holds by its first",
        "laketx/merge_checks.py",
        (("    if len(rows) != 1 or len(rows[0]) != 1:\n", "    if not rows or len(rows[0]) != 1:\n"),),
        OF_SERVICE,
    ),
    Bug(
        "a merge that is repeated without its checks is taken for another",
        "metaservice/rpc/services/branches.py",
        (("    del repeated.checked_table_ids[:]\n", ""),),
        OF_SERVICE,
    ),
    Bug(
        "an alteration of a branch takes its place in the parent with the branch's old properties",
        "metaservice/core/table/replayed_alterations.py",
        (("    merged = onto.with_schema(", "    merged = after.with_schema("),),
        OF_SERVICE,
    ),
    Bug(
        "two tables of a family give one id to two columns",
        SERVICE + "decider/column_ids.py",
        (("last_column_id=max(meta.last_column_id, self._of_family(root))", "last_column_id=meta.last_column_id"),),
        REPLAYS,
    ),
    Bug(
        "a merge drops a column that the parent got meanwhile",
        "metaservice/core/table/merged_columns.py",
        (
            (
                "            merged[number] = column\n        elif number in new:",
                "            continue\n        elif number in new:",
            ),
        ),
        MERGED_COLUMNS,
    ),
    Bug(
        "files of a branch are read under the parent's columns of that number",
        SERVICE + "branch/replayed_columns.py",
        (("        entry.payload = payloads.under_schema(entry.payload, theirs)\n", ""),),
        SCHEMA_OF_FILES,
    ),
    Bug(
        "conditions of a branch's changes keep the names that its columns had",
        "metaservice/rpc/convert/wire.py",
        (("                _rename_columns(message.predicate, names)\n", "                pass\n"),),
        SCHEMA_OF_FILES,
    ),
    Bug(
        "a merged overwrite leaves what the branch had compacted before it",
        SERVICE + "branch/replay.py",
        (("ahead.compacts = logged.version - 1, change.scope is None", "ahead.compacts = logged.version - 1, True"),),
        REPLAYS,
    ),
    Bug(
        "a merge judges by the columns that the table had before the branch's ALTER",
        SERVICE + "branch/replay.py",
        (("            meta = decision.meta or meta\n", ""),),
        OF_SERVICE,
    ),
    Bug(
        "a table that the parent drops is gone on a branch that nobody looked at",
        SERVICE + "table/catalog.py",
        (("        fork_where_shown(state, table)\n        return", "        return"),),
        OF_SERVICE,
    ),
    Bug(
        "a table that the parent renamed is on a branch under both names",
        SERVICE + "decider/forking.py",
        (("    if keys.uuid_text(fork_id(branch, base.raw_id)) in state.tables:", "    if False:"),),
        OF_SERVICE,
    ),
    Bug(
        "a merge moves a cursor past commits that its reader has not seen",
        "metaservice/core/retention/branch_marks.py",
        (("    if own.version > base and not is_forward:\n        raise", "    if False:\n        raise"),),
        MARKS,
    ),
    Bug(
        "a merge moves a cursor that the parent moved, too",
        "metaservice/core/retention/branch_marks.py",
        (("    if position != own.inherited:\n", "    if False:\n"),),
        MARKS,
    ),
    Bug(
        "a cursor on a branch holds nothing of its parent",
        SERVICE + "decider/books.py",
        (("        if cursor.holds:\n            self._holding", "        if False:\n            self._holding"),),
        MARKS,
    ),
    Bug(
        "a refresh puts a cursor back to where its parent's stands",
        SERVICE + "branch/refreshing.py",
        (("        for cursor in moved.cursors:\n", "        for cursor in ():\n"),),
        MARKS,
    ),
    Bug(
        "files of a table that was dropped on a branch are taken for its parent's after the merge",
        SERVICE + "branch/merging.py",
        (
            (
                "            if parent is not None:\n                self._transactions",
                (
                    "            state.put_fork(replace(fork, is_merged=True))\n            if parent is not None:\n"
                    "                self._transactions"
                ),
            ),
        ),
        PURGE,
    ),
    Bug(
        "a branch shows a view as its parent changed it later",
        SERVICE + "decider/name_book.py",
        (("if thing is not None and thing.since_us <= time_us:", "if thing is not None:"),),
        NAMES,
    ),
    Bug(
        "a merge takes a view that both sides changed from the branch",
        "metaservice/core/table/name_history.py",
        (("return Fate.CHANGED if is_same(theirs, base) else Fate.CONFLICT", "return Fate.CHANGED"),),
        NAMES,
    ),
    Bug(
        "a branch shows a table that a merge brought later, since it was made on the other branch",
        SERVICE + "decider/forking.py",
        (
            (
                "if version is None or meta_at(state, table, version).name.lower() != table.meta.name.lower():",
                "if version is None:",
            ),
        ),
        NAMES,
    ),
    Bug(
        "a list of a branch has a table that a merge brought later",
        SERVICE + "table/branch_listing.py",
        (("meta.name.lower() == table.meta.name.lower()", "True"),),
        NAMES,
    ),
    Bug(
        "a list of a branch has a table that was dropped on it",
        SERVICE + "table/branch_listing.py",
        (("(fork is not None and fork.is_dropped) or view is not None", "view is not None"),),
        NAMES,
    ),
    Bug(
        "a page of a branch's tables goes on from a table that the caller may not know of",
        SERVICE + "table/listing.py",
        (("if reads is None or reads(table.known_id)), count)", "if table), count)"),),
        (*OF_SERVICE, "-k", "lists_of_a_branch"),
    ),
    Bug(
        "after a restart events of branches are numbered anew",
        SERVICE + "decider/books.py",
        (("0 if last is None else keys.decode_version(last[0][-8:])", "0"),),
        EVENTS,
    ),
    Bug(
        "a merge that is asked for again is told twice",
        SERVICE + "branch/merging.py",
        (
            (
                "        if done is not None:\n            return done\n",
                (
                    "        if done is not None:\n            who = request.principal"
                    "\n            lost = Branch(request.name, '', '', 0, who, '', 0)"
                    "\n            note_event(self._state, BranchEventKind.MERGED, lost, 0, who)"
                    "\n            return done\n"
                ),
            ),
        ),
        EVENTS,
    ),
    Bug(
        "others commit to tables that a merge is about to change",
        SERVICE + "decider/state.py",
        ((" and table.meta.table_id not in self.held for", " for"),),
        HELD,
    ),
    Bug(
        "others commit to clones while a merge changes what they may need",
        SERVICE + "decider/state.py",
        (("table is not None and table.fork is None and", "table is not None and"),),
        HELD,
    ),
    Bug(
        "readers see the tables that a merge has changed so far",
        SERVICE + "decider/state.py",
        (("        self.changed, other.changed = other.changed, self.changed\n", ""),),
        HELD,
    ),
    Bug(
        "a crash leaves a part of a merge",
        SERVICE + "decider/state.py",
        (("        self.batch.ops, other.ops = other.ops, self.batch.ops\n", ""),),
        HELD,
    ),
    Bug(
        "a merge that was changed in turns is not written",
        SERVICE + "decider/state.py",
        (("        self.batch.ops += other.ops\n", ""),),
        HELD,
    ),
    Bug(
        "a call is run before an earlier one of its caller that waits for a merge",
        SERVICE + "decider/decider.py",
        ((" and sink not in self._postponed_sinks:", ":"),),
        HELD,
    ),
    Bug(
        "calls that wait for a merge are forgotten when the store fails",
        SERVICE + "decider/decider.py",
        (("            self._after_failure(jobs)\n", "            self._after_failure(jobs[:1])\n"),),
        HELD,
    ),
    Bug(
        "a commit that moves a cursor need not wait for a merge of the table that it reads",
        "metaservice/rpc/services/apart.py",
        (("if request.cursors or request.replacements", "if request.replacements"),),
        ("tests/unit/test_apart.py",),
    ),
    Bug(
        "files are registered for a transaction whose begin waits for a merge",
        "metaservice/rpc/services/apart.py",
        (("return None if txn is None else txn.tables", "return () if txn is None else txn.tables"),),
        ("tests/unit/test_apart.py",),
    ),
    Bug(
        "forks that a merge ended are back after a crash",
        SERVICE + "decider/state.py",
        (("        self.ended_forks.load(cursor)\n", ""),),
        ENDED_FORKS,
    ),
    Bug(
        "a start takes the name of a fork that has ended for that of a table",
        SERVICE + "decider/state.py",
        ((" if raw_id not in self.ended_forks]", "]"),),
        ENDED_FORKS,
    ),
    Bug(
        "a fork that has ended takes the name of one on a new branch along",
        SERVICE + "decider/ended_forks.py",
        (("            if ended.name not in names:", "            if True:"),),
        ENDED_FORKS,
    ),
    Bug(
        "a merge forgets the forks that it ended when the first of them has its records",
        SERVICE + "decider/ended_forks.py",
        (("            if following is None or following[0] != key:\n", "            if True:\n"),),
        ENDED_FORKS,
    ),
    Bug(
        "readers find a fork that a merge has ended",
        SERVICE + "commit/dropping.py",
        (
            (
                "        state.changed.add(table_id)\n        state.forks[",
                "        state.forks[",
            ),
        ),
        ENDED_FORKS,
    ),
    Bug(
        "nobody is the admin of a namespace that came with a merge in turns",
        "metaservice/rpc/services/branches.py",
        (("        if request.turns.held is None:\n", "        if True:\n"),),
        ("tests/branches/test_view_doors.py",),
    ),
    Bug(
        "a list has the names of tables that are gone",
        SERVICE + "decider/views.py",
        ((" if table_id in tables]", "]"),),
        READERS_VIEWS,
    ),
    Bug(
        "a table is not found by its name in another case while an old one has it",
        SERVICE + "decider/views.py",
        (("            self._free_names(len(self._gone))\n", "            pass\n"),),
        READERS_VIEWS,
    ),
    Bug(
        "a view that was made ahead hides a later change",
        SERVICE + "decider/views.py",
        (("        for table_id in changed:\n", "        for table_id in set(changed) - set(ahead):\n"),),
        READERS_VIEWS,
    ),
    Bug(
        "of two merges in a group readers get the views of one",
        SERVICE + "decider/views.py",
        (("        self._ahead.update(tables)\n", "        self._ahead = dict(tables)\n"),),
        READERS_VIEWS,
    ),
    Bug(
        "readers never get the views that a merge made ahead",
        SERVICE + "decider/state.py",
        (("        self.views.lay_ahead(other.views)\n", ""),),
        HELD,
    ),
    Bug(
        "a merge in turns takes the result of a table that has moved since",
        SERVICE + "branch/merge_turns.py",
        (("judged.is_done and judged.is_current(state)", "judged.is_done"),),
        TURNS,
    ),
    Bug(
        "a merge in turns leaves out a table that has moved since",
        SERVICE + "branch/branch_replay.py",
        (("or self._replay(table, txn).run(branch.name, time_us)", "or Replayed(parent, parent.meta.name)"),),
        TURNS,
    ),
    Bug(
        "a merge in turns does not see that its branch got a commit",
        SERVICE + "branch/merge_turns.py",
        (("for table_id, table, head in self.line:", "for table_id, table, head in self.line[1:]:"),),
        TURNS,
    ),
    Bug(
        "commits of a merge have the time at which they were judged",
        SERVICE + "branch/merge_turns.py",
        (("else judged.replay.done.at(time_us)", "else judged.replay.done"),),
        TURNS,
    ),
    Bug(
        "a merge writes the record of one commit under the version of another",
        SERVICE + "branch/replay.py",
        (("replayed.prepared.append(", "replayed.prepared.insert(0, "),),
        ("tests/branches/test_conflicts.py",),
    ),
    Bug(
        "a refresh puts the files of its commits into the parent's index",
        SERVICE + "branch/replay.py",
        (("            if self._is_merge:\n", "            if True:\n"),),
        REFRESH,
    ),
    Bug(
        "a fork that is brought back counts as dropped",
        SERVICE + "decider/fork_book.py",
        (("                _take_from(self._dropped, fork.branch, raw_id)\n", "                pass\n"),),
        FORK_BOOK,
    ),
    Bug(
        "nobody knows that a refreshed fork has the files of the one before",
        SERVICE + "decider/fork_book.py",
        ((" or needed_by(before) == needed_by(after))\n", " or True)\n"),),
        FORK_BOOK,
    ),
    Bug(
        "a fork gets the ids that a statement was told for the columns of its replacement",
        SERVICE + "table/catalog.py",
        (("            state.column_ids.reserve(table, after.last_column_id, state.batch)\n", ""),),
        (*SCHEMA_OF_FILES, "-k", "replac"),
    ),
    Bug(
        "a replacement's columns have other ids than its files",
        "metaservice/core/table/meta.py",
        (("return meta if begun <= before.last_column_id else replaced(", "return meta or replaced("),),
        (*SCHEMA_OF_FILES, "-k", "replac"),
    ),
    Bug(
        "the book of forks forgets who needed a table when one of two forks ends",
        SERVICE + "decider/fork_book.py",
        (
            (
                "                if not self._needed[other]:\n                    del self._needed[other]\n",
                "                del self._needed[other]\n",
            ),
        ),
        ("tests/unit/test_fork_book.py",),
    ),
    Bug(
        "a branch shows a tag of a version that it does not have",
        "metaservice/core/retention/branch_marks.py",
        ((" if tag.version <= base else None", ""),),
        MARKS,
    ),
)
