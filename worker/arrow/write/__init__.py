"""Writes of rows in Arrow: append, upsert, UPDATE, DELETE, MERGE, OVERWRITE."""
