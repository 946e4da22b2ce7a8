"""Table services: compaction, clustering, purge, fsck."""
