"""Retention, pins and the purge list."""
