"""Pins, tags and cursors, the horizon, and what may be deleted."""
