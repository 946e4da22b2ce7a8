"""Use cases of operators: status, check, backup, restore, the location of the warehouse."""
