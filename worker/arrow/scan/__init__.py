"""Scans: the rows of one version in Arrow."""
