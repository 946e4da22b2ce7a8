"""Periodic tasks: their SQL, and the statements that they run, by DuckDB and Arrow without Spark."""
