"""Engines beside kinds of tables: who reads what."""
