"""Durability: a small port, the keys and records behind it, and the stores that implement it."""
