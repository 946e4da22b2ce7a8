"""Commits of Iceberg's clients as transactions: requests, written files, new tables."""
