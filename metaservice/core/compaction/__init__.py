"""Which compactions are worthwhile, and the life of their tasks."""
