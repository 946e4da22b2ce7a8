"""Seeded histories of clients, lost answers, crashes and clock jumps, checked against the log."""
