"""Decisions, as pure functions of their arguments: no clock, randomness, id generation, disk, socket, thread or log."""
