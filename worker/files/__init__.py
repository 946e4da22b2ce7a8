"""Jobs on files that need storage and no Spark: the purge, the check of files."""
