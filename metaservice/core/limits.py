"""Every bound in one place. Units last."""

from __future__ import annotations

from typing import Final

NAME_CHARS_MAX: Final = 128
PATH_CHARS_MAX: Final = 1_024
TEXT_CHARS_MAX: Final = 4_096
PROPERTIES_MAX: Final = 64
COLUMNS_MAX: Final = 2_000
FIELDS_MAX: Final = 10_000  # columns and nested fields of one table
COLUMN_ID_MAX: Final = 2**31 - 1
TYPE_CHARS_MAX: Final = 65_536
TYPE_DEPTH_MAX: Final = 32
SCHEMA_CHANGES_MAX: Final = 200
FEATURES_MAX: Final = 64
NAMESPACES_MAX: Final = 10_000
TABLES_MAX: Final = 100_000
HINT_NAMES_MAX: Final = 200
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
PAGE_SCAN_MAX: Final = 10_000  # records that a filtered page looks at
PAGE_SCAN_BYTES_MAX: Final = 8 * 1024 * 1024
OPEN_TRANSACTIONS_MAX: Final = 10_000
LEASE_MS: Final = 60_000
OUTCOME_KEEP_MS: Final = 7 * 24 * 3_600_000
FUTURE_TXN_MS_MAX: Final = 24 * 3_600_000
TICK_ITEMS_MAX: Final = 200
FOOTPRINTS_KEPT: Final = 4_096
TIME_CEILING_STEP_US: Final = 1_000_000
INLINE_ENTRIES_MAX: Final = 512
RETAIN_HOURS_DEFAULT: Final = 24
RETAIN_HOURS_MAX: Final = 100 * 366 * 24
PINS_MAX: Final = 10_000
PIN_LEASE_MS_MIN: Final = 1_000
PIN_LEASE_MS_MAX: Final = 3_600_000
PIN_LOOK_MS: Final = 100
HOUSEKEEPING_STEP_MS: Final = 10
HOUSEKEEPING_ROUND_MS: Final = 1_000
HOUSEKEEPING_TRIM_MS: Final = 60_000
OUTCOME_MARGIN_MS: Final = 24 * 3_600_000  # a wall clock that goes back must not open an id again
CLOCK_TOLERANCE_MS: Final = 60_000
ADOPT_GRACE_MS: Final = 24 * 3_600_000
PURGE_DELAY_MS: Final = 60_000
ROW_ID_STEP: Final = 2**48  # what a restored table skips: more than its other history can have given since the backup
BACKUP_PATH_CHARS_MAX: Final = 512
CHECK_FINDINGS_MAX: Final = 100  # of one table, or of what belongs to none
COMMITS_AGO_MAX: Final = 10_000
PLAN_PARTITIONS_MAX: Final = 10_000  # named, or made of the values that equality allows
PLAN_FILES_REMEMBERED_MAX: Final = 250_000
DIFFERENCE_ENTRIES_MAX: Final = 1_000_000
