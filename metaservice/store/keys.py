"""The families of keys, which this file and `entry_keys` alone know. Big-endian: byte order is version order.

F                          format number            (kept by the store itself)
C                          time ceiling
N name                     table id of a live name
T table version            metadata from that version on
D table                    dropped, and when
U table schema version     metadata that came with it, and the version that made it; from schema version 2 on
E name                     namespace
v name                     view
L table version            commit
K table version chunk      added entries of a large commit
W table time               version with that commit time
I table partition bucket path          live entry
P table removed partition bucket path  entry that a commit took out
Q table partition level node removed added bucket path  the same entry, found by a version that held it
J table version        commit without a time version -> the last one before it that has one
M name                 upkeep that was done to data of an earlier release
R table                    next row id
A table app                application version
X txn                      transaction
O txn                      the transaction is open
S txn table chunk          staged entries
H table                    oldest version that is kept
V pin                      pin
B table partition bucket path          how often a RESTORE brought the entry back, less the ends that were swept
Y txn table chunk          staged entries of an ended transaction, on their way to the purge list
Z table path               on the purge list, and since when
G table                    the purge of a dropped table has begun
g table name               tag
c table name               cursor
p task                     task that has not ended
q time task                task that ended then
j name                     periodic task
l task due                 run of a periodic task that ended
r table                    until when the table's schedule was looked at
n table path               rows of an inlined file, as its writer sent them
w place 0 grantee          role of a user or a group there
k token                    service token, without its secret
b name                     branch
d kind branch name 0 until  what a name of a view or a namespace (kind v, E) stood for until then
h number                   what happened to a branch
f table                    fork: what the table has of another one
z txn                      forks that a merge or refresh ended, as long as other records say that they are there
m table partition bucket path          entry of its base that a fork took out, or whose file is the base's
a table version            what a commit on a branch declared, for the merge
i table                    live inlined rows: how many, their bytes, and since when there are any
x table file partition bucket path     live entry of an external file, by what tells the file from others
e table path 0 table partition bucket path added   kept entry of an external file in the first table's folder
!epoch                     the history that this store tells
!purge_hold                why nothing may be purged; absent: it may
!forgotten                 below this time inside their ids, outcomes were forgotten
!clock                     what the clocks said when they were last believed
!warehouse                 where the warehouse's mark lies
"""

from __future__ import annotations

import struct

CEILING = b"C"
NAMES = b"N"
TABLES = b"T"
NAMESPACES = b"E"
VIEWS = b"v"
DROPPED = b"D"
COMMITS = b"L"
TRANSACTIONS = b"X"
OPEN = b"O"
STAGED = b"S"
PINS = b"V"
DYING = b"Y"
PURGEABLE = b"Z"
TAGS = b"g"
CURSORS = b"c"
EPOCH = b"!epoch"
PURGE_HOLD = b"!purge_hold"
FORGOTTEN = b"!forgotten"
CLOCK = b"!clock"
WAREHOUSE = b"!warehouse"
TASKS = b"p"
ENDED_TASKS = b"q"
PERIODIC_TASKS = b"j"
PERIODIC_RUNS = b"l"
GRANTS = b"w"
TOKENS = b"k"
ROW_IDS = b"R"
COLUMN_IDS = b"u"
OLDEST = b"H"
INLINED_COUNTS = b"i"
TIMES = b"W"
IDLE = b"J"
SCHEMAS = b"U"
CHUNKS = b"K"
LIVE = b"I"
PAST = b"P"
SPANS = b"Q"
APPS = b"A"
INLINED = b"n"
IMPORTS = b"x"
BRANCHES = b"b"
MEANINGS = b"d"
FORKS = b"f"
ENDED_FORKS = b"z"
BRANCH_EVENTS = b"h"
UNDROPPED = b"o"
MASKS = b"m"
DECLARED = b"a"

# Families of which a fork has records of its base, and those of them that are read by ranges.
INHERITED_RANGES = frozenset({TABLES, SCHEMAS, COMMITS, CHUNKS, TIMES, LIVE, PAST, SPANS, IDLE, IMPORTS})
OF_THE_LOG = frozenset({COMMITS, CHUNKS, TIMES, PAST, SPANS, IDLE})
INHERITED_FAMILIES = INHERITED_RANGES | {APPS, INLINED, OLDEST}

_Q = struct.Struct(">Q")
_QQQ = struct.Struct(">QQQ")


def uuid_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def name_key(name: str) -> bytes:
    return NAMES + name.encode()


def table_prefix(table: bytes) -> bytes:
    return TABLES + table


def table_key(table: bytes, version: int) -> bytes:
    return TABLES + table + _Q.pack(version)


def dropped_key(table: bytes) -> bytes:
    return DROPPED + table


def undropped_key(table: bytes) -> bytes:
    return UNDROPPED + table


def schemas_prefix(table: bytes) -> bytes:
    return b"U" + table


def schema_key(table: bytes, schema_version: int) -> bytes:
    return b"U" + table + _Q.pack(schema_version)


def namespace_key(name: str) -> bytes:
    return NAMESPACES + name.encode()


def view_key(name: str) -> bytes:
    return VIEWS + name.encode()


def commits_prefix(table: bytes) -> bytes:
    return b"L" + table


def commit_key(table: bytes, version: int) -> bytes:
    return b"L" + table + _Q.pack(version)


def chunk_key(table: bytes, version: int, chunk: int) -> bytes:
    return b"K" + table + _Q.pack(version) + _Q.pack(chunk)


def times_prefix(table: bytes) -> bytes:
    return TIMES + table


def time_key(table: bytes, time_us: int) -> bytes:
    return TIMES + table + _Q.pack(time_us)


def encode_version(version: int) -> bytes:
    return _Q.pack(version)


def decode_version(raw: bytes) -> int:
    return int(_Q.unpack(raw)[0])


def encode_counts(rows: int, size_bytes: int, since_us: int) -> bytes:
    return _QQQ.pack(rows, size_bytes, since_us)


def decode_counts(raw: bytes) -> tuple[int, int, int]:
    rows, size_bytes, since_us = _QQQ.unpack(raw)
    return int(rows), int(size_bytes), int(since_us)


def idle_key(table: bytes, version: int) -> bytes:
    return IDLE + table + _Q.pack(version)


def upkeep_key(name: str) -> bytes:
    return b"M" + name.encode()


def row_id_key(table: bytes) -> bytes:
    return ROW_IDS + table


def column_id_key(root: bytes) -> bytes:
    return COLUMN_IDS + root


def app_key(table: bytes, app_id: str) -> bytes:
    return b"A" + table + app_id.encode()


def txn_key(txn: bytes) -> bytes:
    return TRANSACTIONS + txn


def open_key(txn: bytes) -> bytes:
    return OPEN + txn


def staged_prefix(txn: bytes, table: bytes | None = None) -> bytes:
    return b"S" + txn + (table or b"")


def staged_key(txn: bytes, table: bytes, chunk: int) -> bytes:
    return b"S" + txn + table + _Q.pack(chunk)


def uuid_text(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def oldest_key(table: bytes) -> bytes:
    return OLDEST + table


def pin_key(pin: bytes) -> bytes:
    return PINS + pin


def dying_key(staged: bytes) -> bytes:
    """The new key of a staged chunk with this key."""
    return DYING + staged[1:]


def table_of_dying(key: bytes) -> bytes:
    return key[17:33]


def purgeable_prefix(table: bytes) -> bytes:
    return PURGEABLE + table


def purgeable_key(table: bytes, path: str) -> bytes:
    return PURGEABLE + table + path.encode()


def path_of_purgeable(key: bytes) -> str:
    return key[17:].decode()


def drop_begun_key(table: bytes) -> bytes:
    return b"G" + table


def grant_key(place: str, grantee: str) -> bytes:
    return GRANTS + place.encode() + b"\0" + grantee.encode()


def split_grant_key(key: bytes) -> tuple[str, str]:
    place, _, grantee = key[len(GRANTS) :].partition(b"\0")
    return place.decode(), grantee.decode()


def token_key(token_id: str) -> bytes:
    return TOKENS + token_id.encode()


def tag_key(table: bytes, name: str) -> bytes:
    return TAGS + table + name.encode()


def cursor_key(table: bytes, name: str) -> bytes:
    return CURSORS + table + name.encode()


def branch_key(name: str) -> bytes:
    return BRANCHES + name.encode()


def branch_event_key(number: int) -> bytes:
    return BRANCH_EVENTS + _Q.pack(number)


def meanings_prefix(kind: bytes, branch: bytes = b"") -> bytes:
    return MEANINGS + kind + branch


def meaning_key(kind: bytes, branch: bytes, name: str, until_us: int) -> bytes:
    return meanings_prefix(kind, branch) + name.encode() + b"\x00" + _Q.pack(until_us)


def decode_meaning_key(key: bytes) -> tuple[bytes, str, int]:
    """The branch, the name, and until when."""
    return key[2:18], key[18:-9].decode(), decode_version(key[-8:])


def fork_key(table: bytes) -> bytes:
    return FORKS + table


def ended_forks_key(txn: bytes) -> bytes:
    return ENDED_FORKS + txn


def declared_key(table: bytes, version: int) -> bytes:
    return DECLARED + table + _Q.pack(version)


def table_of_mark(key: bytes) -> bytes:
    """The table of a tag's or cursor's key."""
    return key[1:17]


def record_prefixes(table: bytes) -> list[bytes]:
    """The other records of a dropped table, besides its entries and its metadata."""
    families = (b"L", b"K", b"W", b"A", b"B", b"R", b"H", b"U", b"Q", b"J", b"r", b"x", b"n", b"i", MASKS, DECLARED)
    return [family + table for family in (*families, TAGS, CURSORS, COLUMN_IDS, UNDROPPED)]


def txn_time_ms(key: bytes) -> int:
    """The time inside the id of a transaction's key."""
    return int.from_bytes(key[1:7], "big")


def chunks_prefix(table: bytes) -> bytes:
    return b"K" + table


def split_versioned(key: bytes) -> tuple[bytes, int]:
    """Table and version, or time, of a key that ends with it: T, L, W."""
    return key[1:17], decode_version(key[17:25])


def split_chunk(key: bytes) -> tuple[int, int]:
    """Version and chunk of a key of added entries."""
    return decode_version(key[17:25]), decode_version(key[25:33])


def split_staged(key: bytes) -> tuple[bytes, bytes, int]:
    """Transaction, table and chunk."""
    return key[1:17], key[17:33], decode_version(key[33:41])


def inlined_prefix(table: bytes) -> bytes:
    return b"n" + table


def inlined_key(table: bytes, path: str) -> bytes:
    return b"n" + table + path.encode()


def path_of_inlined(key: bytes) -> str:
    return key[17:].decode()


def inlined_count_key(table: bytes) -> bytes:
    return INLINED_COUNTS + table


def task_key(task: bytes) -> bytes:
    return TASKS + task


def ended_task_key(end_us: int, task: bytes) -> bytes:
    return ENDED_TASKS + _Q.pack(max(end_us, 0)) + task


def periodic_task_key(name: str) -> bytes:
    return PERIODIC_TASKS + name.encode()


def periodic_runs_prefix(task: bytes) -> bytes:
    return PERIODIC_RUNS + task


def periodic_run_key(task: bytes, due_us: int) -> bytes:
    return PERIODIC_RUNS + task + _Q.pack(due_us)


def schedule_key(table: bytes) -> bytes:
    return b"r" + table
