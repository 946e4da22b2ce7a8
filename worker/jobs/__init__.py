"""What workers do for tables, one job a module: compactions, the purge, the check of files."""
