"""The engine without Spark: rows in Arrow."""
