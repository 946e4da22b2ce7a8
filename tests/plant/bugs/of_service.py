"""Bugs of the service."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

SEND = """        self.jobs += answered
        for sink, given in answers.items():
            sink(given)
"""
TICK = """            if self._alone is None:
                self._tick()
"""
SEND_EARLY = """            for sink, given in answers.items():
                sink(given)
"""
SET_HEAD = "        table.head, table.last_time_us = commit.version, commit.time_us\n"
PUBLISH_EARLY = "        state.views.publish(table.view())\n"
PUT_OPEN = '            self._batch.put(keys.open_key(raw), b"")\n'
SERVICE = "metaservice/service/"
BLOCKS = ("tests/unit/test_file_blocks.py",)
REMEMBERED = ("tests/arrow/test_remembered_plans.py",)
ONE_BATCH = ("tests/arrow/test_one_batch.py",)

BUGS: Final = (
    Bug(
        "the answered times are forgotten in a crash",
        SERVICE + "decider/state.py",
        (("self.ceiling_us = self.answered_us = keys", "self.ceiling_us = keys"),),
    ),
    Bug(
        "a repeated begin or append is taken as new",
        SERVICE + "commit/admission.py",
        (
            (
                "        txn = state.find_txn(txn_id)\n",
                "        txn = state.open.get(txn_id)\n",
            ),
        ),
    ),
    Bug(
        "answers leave before the sync",
        SERVICE + "decider/decider.py",
        (
            (TICK, SEND_EARLY + TICK),
            (SEND, ""),
        ),
    ),
    Bug(
        "readers see the head before it is durable",
        SERVICE + "commit/outcomes.py",
        ((SET_HEAD, SET_HEAD + PUBLISH_EARLY),),
    ),
    Bug(
        "retention uses data.retain.hours before its change is durable",
        SERVICE + "retention/housekeeping.py",
        (("retain_us(view.meta.properties)", "retain_us(table.meta.properties)"),),
    ),
    Bug(
        "a plan looks for removed entries only up to the durable head",
        SERVICE + "read/scan.py",
        (("partition, version, self._removed_max)", "partition, version, self._request.version)"),),
    ),
    Bug(
        "row ids start again after a restart",
        SERVICE + "decider/loading.py",
        (("keys.decode_version(raw_row) if raw_row is not None else 1", "1"),),
    ),
    Bug(
        "registered files are forgotten in a crash",
        SERVICE + "decider/txn_book.py",
        (("                    table.staged[entry.path] = entry\n", "                    pass\n"),),
    ),
    Bug(
        "files registered before the first write of a transaction are not written",
        SERVICE + "decider/txn_book.py",
        ((PUT_OPEN + "            self._put_staged(txn)\n", PUT_OPEN),),
    ),
    Bug(
        "a clock that jumped between two runs is trusted",
        SERVICE + "decider/clocks.py",
        (("        self._hold(jump_ms)\n", ""),),
    ),
    Bug(
        "leases run out while the service is suspended",
        SERVICE + "decider/clocks.py",
        (("            self._decider.state.start_leases()\n", ""),),
    ),
    Bug(
        "ended tasks are forgotten while the clock is not trusted",
        SERVICE + "compaction/maintenance.py",
        (("        keep_from_us = 0 if self._halted() else now_us", "        keep_from_us = now_us"),),
    ),
    Bug(
        "an option in place of a missing value is parsed as the value",
        "metaservice/cli/command.py",
        (("isinstance(text, str) and text in names", "text is names"),),
    ),
    Bug(
        "changes of columns are applied in the order of their options",
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
        own_tests=("tests/integration/test_new_tables.py", "-k", "goes_with"),
    ),
    Bug(
        "a hidden table is dropped while the transaction that fills it is open",
        SERVICE + "commit/dropping.py",
        (("is_filled = any(table_id in txn.tables for txn in state.open.values())", "is_filled = False"),),
        own_tests=("tests/retention/test_unborn.py",),
    ),
    Bug(
        "a table takes the name of a view",
        SERVICE + "decider/naming.py",
        (("    if is_taken and (", "    if view and is_taken and ("),),
        own_tests=("tests/integration/test_views.py", "-k", "one_name"),
    ),
    Bug(
        "a remembered plan keeps entries that a commit removed",
        "metaservice/store/records/plans.py",
        (("if record.removed or record.added_chunks:", "if record.added_chunks:"),),
        own_tests=REMEMBERED,
    ),
    Bug(
        "a remembered plan of an older version answers for a newer one",
        SERVICE + "read/scan.py",
        (("cached = self._extended(cached, shown)", "cached = cached._replace(version=self.version)"),),
        own_tests=REMEMBERED,
    ),
    Bug(
        "rows that come joined overlook what was deleted",
        "metaservice/rpc/convert/joined_rows.py",
        (('entry.HasField("delete_set") or ', ""),),
        own_tests=("tests/arrow/test_joined_rows.py", "-k", "deleted"),
    ),
    Bug(
        "rows that come joined are those of an older version",
        SERVICE + "read/plan_caches.py",
        (
            ("self._joined.get(piece)", "self._joined.get(piece[:99])"),
            ("self._joined[piece] = joined", "self._joined[piece[:99]] = joined"),
            ("is_final = at < len(answered.pieces)", "is_final = True"),
        ),
        own_tests=("tests/arrow/test_joined_rows.py", "-k", "as_they_go_on"),
    ),
    Bug(
        "rows that come in one batch lose the NULLs of all batches but the first",
        "metaservice/shared/arrow_batches.py",
        (("joined |= some << at", "joined |= (some if not at else all_set) << at"),),
        own_tests=ONE_BATCH,
    ),
    Bug(
        "texts that come in one batch begin where their own batch has them",
        "metaservice/shared/arrow_batches.py",
        (("shift = size - first", "shift = -first"),),
        own_tests=ONE_BATCH,
    ),
    Bug(
        "rows that come in one batch overlook a batch that says less than it should",
        "metaservice/shared/arrow_batches.py",
        (("if len(content) < size:", "if size < 0:"),),
        own_tests=ONE_BATCH,
    ),
    Bug(
        "a remembered plan has new entries at its end instead of in order",
        SERVICE + "read/scan.py",
        (("order[0] <= cached.last:", "not order[0]:"),),
        own_tests=REMEMBERED,
    ),
    Bug(
        "a block of files has the bounds of its first file",
        "metaservice/core/table/pruning.py",
        (
            (
                "any(value is None for value in highs) else max(highs)",
                "any(value is None for value in highs) else highs[0]",
            ),
        ),
        own_tests=BLOCKS,
    ),
    Bug(
        "a plan by blocks overlooks files that came since",
        SERVICE + "read/file_blocks.py",
        (("Blocks(self.blocks, single)", "Blocks(self.blocks, self.single)"),),
        own_tests=BLOCKS,
    ),
    Bug(
        "the rows of an inlined file outlive its last version",
        SERVICE + "retention/purge.py",
        (("if entry.inlined:", "if entry.inlined and not entry.rows:"),),
    ),
    Bug(
        "the rows of an inlined file are not stored with its commit",
        SERVICE + "commit/outcomes.py",
        (("        if entry.content:\n", "        if entry.content and not entry.inlined:\n"),),
    ),
    Bug(
        "a transaction that is aborted leaves its inlined rows behind",
        SERVICE + "decider/txn_book.py",
        (("if entry.inlined and not entry.content:", "if entry.inlined and entry.content:"),),
    ),
)
