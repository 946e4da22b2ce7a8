"""Bugs of stores, leadership and backups."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

SERVICE = "metaservice/service/"
FENCES = "            self._fenced = True\n            return self._fence()\n"
PUT_MANIFEST = "            self._objects.put(_manifest_name(backup_id), encode_manifest(manifest))\n"
ADOPT = "            self._lease, self._tag = state\n"
ADOPT_LATE = ADOPT + "            self._valid_until_ms = self._clocks.mono_ms() + VALID_MS\n"

BUGS: Final = (
    Bug(
        "the fences that keep late writes out of a bucket's log are collected",
        "metaservice/store/engines/slate.py",
        (('{**_OLD, "dry_run": True}', "_OLD"),),
        own_tests=("tests/integration/test_collection.py", "-k", "in_flight"),
    ),
    Bug(
        "a store is opened without looking where its log is",
        "metaservice/store/engines/slate.py",
        (
            (
                "    if place.folder is not None:\n        return None\n    log = find_log",
                "    if True:\n        return None\n    log = find_log",
            ),
        ),
        own_tests=("tests/integration/test_log_elsewhere.py", "-k", "without_its_log"),
    ),
    Bug(
        "a bucket of the right name is taken for the log's",
        "metaservice/store/lease/log_record.py",
        (("    if owner != record:\n", "    if False:\n"),),
        own_tests=("tests/integration/test_log_elsewhere.py", "-k", "without_its_log"),
    ),
    Bug(
        "the server of a log is not tried for conditions of PUT, which are the fence",
        "metaservice/store/lease/log_record.py",
        (("    if beside_log.create(record):", "    if beside_log.create(record) and False:"),),
        own_tests=("tests/integration/test_log_elsewhere.py", "-k", "ignores_conditions"),
    ),
    Bug(
        "a new store takes the log that another one has left at its path",
        "metaservice/store/lease/log_record.py",
        (('    if beside_log.has("wal/"):\n', "    if False:\n"),),
        own_tests=("tests/integration/test_log_elsewhere.py", "-k", "interrupted"),
    ),
    Bug(
        "the format of a store whose log is elsewhere is only in the log",
        "metaservice/store/engines/slate.py",
        (("_LOG if first == FIRST else _TABLES", "_LOG"),),
        own_tests=("tests/integration/test_log_elsewhere.py", "-k", "release"),
    ),
    Bug(
        "a copy with its log in another bucket has the format of its source",
        "metaservice/store/engines/copying.py",
        (('max(form, own or b"")', "form"),),
        own_tests=("tests/integration/test_log_elsewhere.py", "-k", "release"),
    ),
    Bug(
        "a delete set that names no files is forgotten in the log",
        "metaservice/store/records/tables.py",
        (("frozenset(e.partition for e in own_sets if hides_beyond(e.touches, touched))", "frozenset()"),),
    ),
    Bug(
        "a log that was deleted or emptied is opened as an older state",
        "metaservice/store/engines/rocks.py",
        (
            ("        refuse_a_lost_log(path)\n", ""),
            ("        refuse_lost_writes(path, db.latest_sequence_number())\n", ""),
        ),
    ),
    Bug(
        "after a sync the synced length is not recorded, and the folder is not checked",
        "metaservice/store/engines/rocks.py",
        (("            self._mark.note(self._db.latest_sequence_number())\n", ""),),
    ),
    Bug(
        "the purge checks only its own table before it deletes",
        "metaservice/store/external_files.py",
        (("return {path for path in paths if _any(cursor, entry_keys.named_prefix(table, path))}", "return set()"),),
    ),
    Bug(
        "an external file with another spelling of its path is another file",
        "metaservice/store/external_files.py",
        (("identity_of(path).encode()", "path.encode()"),),
    ),
    Bug(
        "a fenced leader treats the fencing as an ordinary failure, and reopens its store",
        "metaservice/server/store_opening.py",
        (
            ("        if self._is_opened:\n", "        if False:\n"),
            (
                "        self._is_opened = True\n",
                "",
            ),
        ),
        own_tests=("tests/integration/test_high_availability.py", "-k", "once"),
    ),
    Bug(
        "a leader that is fenced closes its store and opens it again, which fences its successor",
        "metaservice/server/store_opening.py",
        (("        if self._is_opened:\n", "        if False:\n"),),
        also=(
            (
                "metaservice/store/engines/slate.py",
                FENCES,
                "            pass\n",
            ),
        ),
    ),
    Bug(
        "a leader reopens its store after a PUT whose answer was lost",
        "metaservice/server/store_opening.py",
        (("        if self._is_opened:\n", "        if False:\n"),),
    ),
    Bug(
        "a take-over uses prefetched metadata of tables that has changed since",
        "metaservice/service/decider/loading.py",
        (
            ("self._by_record.get(raw) or", "self._by_record.get(raw[:38]) or"),
            ("{raw: self(raw) for raw in raws}", "{raw[:38]: self(raw) for raw in raws}"),
        ),
        own_tests=("tests/unit/test_reading_ahead.py",),
    ),
    Bug(
        "the log of a store in a bucket is never written to tables for its length",
        "metaservice/store/engines/slate.py",
        (("if self._log_files >= self.log_files_max and", "if False and"),),
        own_tests=("tests/contract/test_store.py", "-k", "so_many_syncs"),
    ),
    Bug(
        "a store in a bucket reports a write as durable before the bucket has it",
        "metaservice/store/engines/slate.py",
        (
            (
                "        self.ask(lambda: self._db.flush_with_options(_LOG))\n        self._is_synced",
                "        self._is_synced",
            ),
        ),
    ),
    Bug(
        "a lease is valid from when its renewal was answered, not from when it was sent",
        "metaservice/server/ha/leadership.py",
        (("following, tag, sent_ms + VALID_MS", "following, tag, self._clocks.mono_ms() + VALID_MS"),),
    ),
    Bug(
        "a lease that was renewed without an answer is valid from when that is found out",
        "metaservice/server/ha/leadership.py",
        ((ADOPT, ADOPT_LATE),),
    ),
    Bug(
        "a leader takes the lost answer of its own renewal for another's lease",
        "metaservice/server/ha/leadership.py",
        (("state[0].holder == self._holder and not", "state[0].holder == self._holder and False and not"),),
    ),
    Bug(
        "a former leader continues with the lease of its successor",
        "metaservice/server/ha/leadership.py",
        (("state[0].holder == self._holder and not", "not"),),
    ),
    Bug(
        "a fenced store reports an ordinary failure",
        "metaservice/store/engines/slate.py",
        ((FENCES, "            pass\n"),),
        own_tests=("tests/contract/test_store.py", "-k", "fences"),
    ),
    Bug(
        "a leader answers after its lease",
        "metaservice/server/ha/leadership.py",
        (("return None if self._left_ms() > 0 else not_leader(self.leader)", "return None"),),
    ),
    Bug(
        "a backup's manifest is written before its files",
        "metaservice/store/backups/repository.py",
        (
            (
                "            self._each(\n                list(missing",
                PUT_MANIFEST + "            self._each(\n                list(missing",
            ),
            (PUT_MANIFEST + "        return total\n", "        return total\n"),
        ),
    ),
    Bug(
        "a prune deletes files of the backups that it keeps, except for the newest",
        "metaservice/store/backups/repository.py",
        (
            (
                "self._named_by(backup_id for backup_id in present if backup_id not in gone)",
                "self._named_by(present[-1:])",
            ),
        ),
    ),
    Bug(
        "a prune deletes files of a backup that is under way",
        "metaservice/store/backups/repository.py",
        (("            self._refuse_others(name, kind)\n", ""),),
    ),
    Bug(
        "a scheduled backup that failed is not tried again",
        SERVICE + "operate/backup_schedule.py",
        (("self._clocks.mono_ms() + wait_ms\n", "self._clocks.mono_ms() + (wait_ms << 40)\n"),),
    ),
)
