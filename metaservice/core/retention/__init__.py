"""What is kept, and by which holder."""
