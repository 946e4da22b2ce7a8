"""Jobs on files that need storage and no Spark: purge and fsck."""
