"""What is worth compacting, and the life of the tasks that do it."""
