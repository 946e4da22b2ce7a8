"""Judging and rebasing: whether a change may follow the commits since its snapshot, and its form on top of them."""
