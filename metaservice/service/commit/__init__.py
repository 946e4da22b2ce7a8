"""Transactions, from begin to answer."""
