"""Versions, plans of scans and increments, history."""
