"""Pairs of statements that meet at every boundary, at every door: outcomes and rows are compared with the docs."""
