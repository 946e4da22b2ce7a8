"""What operators ask for: status, check, backup, restore, the place of the warehouse."""
