"""What every call passes: a thread of its kind, limits, and the streams that stay open."""
