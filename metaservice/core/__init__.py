"""Decisions, as pure functions of their arguments: no clock, randomness, id-making, disk, socket, thread or log."""
