"""High availability: who leads, and what the others do meanwhile."""
