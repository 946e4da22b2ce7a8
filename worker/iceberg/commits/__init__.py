"""Commits of Iceberg's clients as transactions: what they ask for, the files that they wrote, the tables they make."""
