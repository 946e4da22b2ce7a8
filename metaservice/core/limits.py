"""Every bound in one place. Units last."""

from __future__ import annotations

from typing import Final

NAME_CHARS_MAX: Final = 128
PATH_CHARS_MAX: Final = 1_024
TEXT_CHARS_MAX: Final = 4_096
PROPERTIES_MAX: Final = 64
COLUMNS_MAX: Final = 2_000
BUCKETS_MAX: Final = 65_536
TABLES_PER_TRANSACTION_MAX: Final = 64
FILES_PER_TRANSACTION_MAX: Final = 1_000_000
FILES_PER_MESSAGE_MAX: Final = 20_000
APPENDS_PER_BATCH_MAX: Final = 1_000
READS_MAX: Final = 256
PREDICATE_NODES_MAX: Final = 10_000
PREDICATE_DEPTH_MAX: Final = 64
COUNT_MAX: Final = 2**62
FILE_COUNT_MAX: Final = 2**42  # rows or bytes of one file: a transaction's sums stay below 2**62
ROW_ID_MAX: Final = 2**62
INTEGER_MAX: Final = 2**63 - 1
PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1_000
OPEN_TRANSACTIONS_MAX: Final = 10_000
LEASE_MS: Final = 60_000
OUTCOME_KEEP_MS: Final = 7 * 24 * 3_600_000
FUTURE_TXN_MS_MAX: Final = 24 * 3_600_000
TICK_ITEMS_MAX: Final = 200
FOOTPRINTS_KEPT: Final = 4_096
TIME_CEILING_STEP_US: Final = 1_000_000
INLINE_ENTRIES_MAX: Final = 512
COMMITS_AGO_MAX: Final = 10_000
PLAN_PARTITIONS_MAX: Final = 10_000  # named, or made of the values that equality allows
PLAN_FILES_REMEMBERED_MAX: Final = 250_000
DIFFERENCE_ENTRIES_MAX: Final = 1_000_000
