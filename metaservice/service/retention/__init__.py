"""Pins, tags and cursors, the horizon, and deletion."""
