"""Branches and clones, and the merge of a branch into its parent."""
