"""Reads and writes of Spark DataFrames, as statements of Spark's catalog."""
