"""What policies want compacted, and the tasks on their way to a worker and back."""
