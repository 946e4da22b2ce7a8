"""What the store writes to disk, which is no part of the public wire."""
