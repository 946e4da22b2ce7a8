"""Transactions, from begin to their answer."""
