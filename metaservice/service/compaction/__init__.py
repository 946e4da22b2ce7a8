"""The plans of compactions, and their tasks from the queue to a worker and back."""
