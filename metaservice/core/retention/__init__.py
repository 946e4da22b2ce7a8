"""What is kept, and for whom."""
