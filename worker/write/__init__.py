"""Writes: rows staged as files, and the transactions that commit them."""
