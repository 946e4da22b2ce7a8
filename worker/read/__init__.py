"""Reads: versions, their entries and increments as DataFrames."""
