"""Bugs of the pure core."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

SHARED = """            rows = own.common(hidden, limits.ROWS_SAMPLED_MAX)
            if rows is not None:
"""
EXPIRED = "    TxnState.EXPIRED: {"
CORE = "metaservice/core/"

BUGS: Final = (
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
        "a commit's time is the clock's time, even if the clock went back",
        CORE + "clock.py",
        (("max(now_us, last_commit_us + 1, answered_us + 1)", "now_us"),),
    ),
    Bug(
        "an answered time is ignored",
        CORE + "clock.py",
        (("max(now_us, last_commit_us + 1, answered_us + 1)", "max(now_us, last_commit_us + 1)"),),
    ),
    Bug(
        "a minor compaction's files get its commit's data version",
        CORE + "commit/rebase.py",
        (("data_version = change.read_version if whole else highest", "data_version = head + 1"),),
    ),
    Bug(
        "lineage is not followed: missing inputs are left out",
        CORE + "commit/rebase.py",
        (
            ("if isinstance(gone, Footprint):", "if gone is None:"),
            ("gone = _follow(change, meta, steps, group)", "gone = {p for p in group.inputs if p in now}"),
        ),
    ),
    Bug(
        "an expired transaction may commit",
        CORE + "commit/transaction.py",
        ((EXPIRED, EXPIRED + "TxnEvent.COMMIT: TxnState.OPEN, TxnEvent.WIN: TxnState.COMMITTED, "),),
    ),
    Bug(
        "the delta profiles don't look at concurrent appends",
        CORE + "commit/delta_rules.py",
        (("return _appends(judged, winner) or _removed_read", "return _removed_read"),),
    ),
    Bug(
        "an overwrite removes only the files that were live at its read version",
        CORE + "commit/rebase.py",
        (("change.operation in SCOPED and meta.profile.is_delta", "change.operation in SCOPED"),),
    ),
    Bug(
        "planning passes over a bucket with as many small files as its policy allows",
        CORE + "compaction/early_exit.py",
        (
            ("small >= policy.minor_files", "small > policy.minor_files"),
            ("small >= policy.cluster_files", "small > policy.cluster_files"),
        ),
    ),
    Bug(
        "a worker may continue after another worker has claimed its task",
        CORE + "compaction/tasks.py",
        (("task.state is not TaskState.CLAIMED or task.fence != fence", "task.state is not TaskState.CLAIMED"),),
    ),
    Bug(
        "under the delta profiles a delete set that names no files touches no file",
        CORE + "table/model.py",
        (("return self.is_delete_set and not self.touches", "return False"),),
    ),
    Bug(
        "a change without effect skips the check of appends even if its transaction changes another table",
        CORE + "commit/judged_change.py",
        (("changes_data(change) or change.others_change_data:", "changes_data(change):"),),
    ),
    Bug(
        "an INSERT together with a RESTORE of another table is a blind append",
        CORE + "commit/transaction_facts.py",
        (("all(blind[:at] + blind[at + 1 :])", "True"),),
    ),
    Bug(
        "under row_level two changes of one row don't conflict",
        CORE + "commit/row_level.py",
        ((SHARED, SHARED.replace("is not None", "is not None and len(rows) > 1")),),
    ),
    Bug(
        "under row_level new rows that match a read don't conflict",
        CORE + "commit/row_level.py",
        (("if entry.partition not in touched or (me", "if entry.partition in touched or (me"),),
    ),
    Bug(
        "many winners are passed at once although one wrote a key of the change",
        CORE + "commit/winner_blocks.py",
        (("        if not own_keys.isdisjoint(keys):\n            return False\n", ""),),
    ),
    Bug(
        "many winners are passed at once although one changed a partition that the change read",
        CORE + "commit/judged_change.py",
        (("return self._reads.may_touch(partition)", "return False"),),
    ),
    Bug(
        "many winners are passed at once although one touched another partition than the one before it",
        CORE + "commit/winner_blocks.py",
        (("plain = (operation, winner.blind, winner.shared, winner.partitions)", "plain = (operation, winner.blind)"),),
    ),
    Bug(
        "many appends are passed at once although a later winner read them",
        CORE + "commit/winner_blocks.py",
        (
            (
                "conflict = None if block.is_calm(keyed=keyed) and not reads_order else judging.settle(may_skip=False)",
                "conflict = None",
            ),
        ),
    ),
    Bug(
        "an id whose outcome was forgotten may begin again under another clock",
        CORE + "commit/transaction.py",
        (("    if time_ms < forgotten_ms:\n", "    if time_ms < 0:\n"),),
    ),
    Bug(
        "a key needs no partition columns",
        CORE + "table/key_scope.py",
        (("    if KEY_SCOPE not in properties:\n        raise", "    if len(missing) > 1:\n        raise"),),
    ),
    Bug(
        "what an older check of the keys saw counts for a later one",
        CORE + "table/key_scope.py",
        (("properties.get(KEY_SCOPE) == CHECKING and checked_buckets(properties)[0] == check", "check > 0"),),
        own_tests=("tests/arrow/test_key_scope_checks.py", "-m", "not long", "-k", "changes_only"),
    ),
    Bug(
        "an ALTER says how far a check of the keys is",
        CORE + "table/properties.py",
        (
            (
                "    if definition is not None and definition.is_of_service:",
                "    if definition is not None and definition.name == name == '':",
            ),
            ("    if name in BY_NAME and BY_NAME[name].is_of_service:", "    if name == '':"),
        ),
        own_tests=("tests/iceberg/test_key_promises.py",),
    ),
    Bug(
        "a RESTORE goes behind the promise of a key across partitions",
        "metaservice/service/commit/judging.py",
        (("then.properties) != TABLE:", 'then.properties) == "":'),),
        own_tests=("tests/arrow/test_key_scope_checks.py", "-m", "not long", "-k", "no_restore"),
    ),
    Bug(
        "two writers of one key in two partitions don't conflict",
        CORE + "commit/keys_across.py",
        (("if added[2] in self._buckets]", "if added[1:] in self._places]"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "never_put"),
    ),
    Bug(
        "a merge of a branch commits an upsert again although the parent put its key into another partition",
        CORE + "commit/judged_change.py",
        ((" and not self.meta.key_spans_partitions\n", "\n"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "branch"),
    ),
    Bug(
        "an upsert passes a RESTORE that brought its key back in another partition",
        CORE + "commit/keys_across.py",
        (("if winner.operation is Operation.RESTORE:", "if winner.operation is Operation.RESTORE and winner.blind:"),),
        own_tests=("tests/arrow/test_keys_across.py", "-m", "not long", "-k", "before_a_restore"),
    ),
    Bug(
        "a lease is taken while its holder may still answer",
        CORE + "lease.py",
        (("TAKE_MS: Final = 4_500", "TAKE_MS: Final = 2_500"),),
    ),
    Bug(
        "a standby takes a lease that is renewed",
        CORE + "lease.py",
        (("if before is not None and before.tag == tag:", "if before is not None:"),),
    ),
    Bug(
        "changes of one cell commute",
        CORE + "commit/cells.py",
        (("first.isdisjoint(second)", "first != frozenset()"),),
        own_tests=("tests/arrow/test_partial_updates.py", "-m", "not long", "-k", "conflict_and_so_do"),
    ),
    Bug(
        "an update is passed by images of what it read",
        CORE + "commit/cells.py",
        (("return bool(cells) and cells.isdisjoint(read.columns)", "return bool(cells)"),),
        own_tests=("tests/arrow/test_partial_updates.py", "-m", "not long", "-k", "conflict_and_so_do"),
    ),
    Bug(
        "every image of a merge counts as one of a row that was there",
        CORE + "commit/cells.py",
        (("return operation is Operation.UPDATE or", "return operation is not Operation.INSERT or"),),
        own_tests=("tests/unit/test_cells.py",),
    ),
    Bug(
        "a merge counts the rows that it made among those that it found",
        CORE + "commit/row_level.py",
        (("return all(self.cells.make_no_rows(self.change.operation, file) for file in files)", "return bool(files)"),),
        own_tests=("tests/unit/test_cells.py",),
    ),
    Bug(
        "changes of different cells of a row conflict",
        CORE + "commit/cells.py",
        (("if not self.meta.is_partial:", "if self.meta.is_partial:"),),
        own_tests=("tests/arrow/test_partial_updates.py", "-m", "not long", "-k", "both_commit"),
    ),
    Bug(
        "a commit says that it passed others by its columns though their keys differ",
        CORE + "commit/cells.py",
        (
            (
                "if own_keys is not None and their_keys is not None and frozenset(own_keys).isdisjoint(their_keys):",
                "if own_keys is their_keys:",
            ),
        ),
        own_tests=("tests/integration/test_row_level.py", "-m", "not long", "-k", "passed_by_its_columns"),
    ),
    Bug(
        "files of images that set columns are left out by columns that are not the key's",
        "metaservice/rpc/convert/plans.py",
        (("if meta.is_partial:", "if not meta:"),),
        own_tests=("tests/arrow/test_partial_updates.py", "-m", "not long", "-k", "as_a_dict_does"),
    ),
)
