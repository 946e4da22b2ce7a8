"""Transactions from begin to commit: what is declared, staged, retried after a lost race, and cleaned up."""
