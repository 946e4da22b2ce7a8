"""Options of RocksDB: small bounded buffers, small compactions, and a cache that bounds all memory of reads."""

from pathlib import Path

from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options

_MIB = 1 << 20


_OPTIONS = Path(__file__).with_name("options")


def rocks_options() -> Options:
    options, _ = Options.load_latest(str(_OPTIONS))  # a log that was closed and is gone, or shorter, is damage
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    # Accepts a torn last record, refuses damage before it. The default mode opens what precedes the damage, silently.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())

    # What the buffers hold, a start after a crash has to replay (0.1 s each) and to find room for; hence small ones. A
    # writer that outruns all of them is stalled with the GIL held, and all of the process with it; hence several.
    options.set_write_buffer_size(16 * _MIB)
    options.set_max_write_buffer_number(4)
    # Likewise: rather more files to look into for a while than a stall.
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(80)
    options.set_max_background_jobs(2)
    # A compaction needs room for its outcome beside its inputs, whatever the service holds back for itself: small ones.
    options.set_max_bytes_for_level_base(64 * _MIB)
    options.set_target_file_size_base(32 * _MIB)
    options.set_max_compaction_bytes(128 * _MIB)
    # What was live once is skipped by every scan until a compaction drops it: tables with much of it go first.
    options.add_compact_on_deletion_collector_factory(4_096, 1_024, 0.25)
    # Tables reach the disk while they are written, not in one burst that the next sync of the log would wait behind.
    options.set_bytes_per_sync(_MIB)

    # Upper levels are rewritten often, the last one seldom and holds nearly everything.
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(64 * _MIB))
    tables.set_block_size(16 * 1024)  # scans of neighbours, and better compression
    tables.set_bloom_filter(10, False)  # many gets ask for what isn't there: is this transaction known?
    tables.set_cache_index_and_filter_blocks(True)  # else they grow with the data, outside of any bound
    # The cache is split into parts of 1 MiB, and an index or a filter that is larger would be read anew each time.
    tables.set_index_type(BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_block_based_table_factory(tables)

    # An opening reads neither every table's header nor its statistics.
    options.set_max_open_files(512)
    options.set_skip_stats_update_on_db_open(True)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 * _MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
