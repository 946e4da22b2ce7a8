"""Increments: the changes of rows between two versions in Arrow."""
