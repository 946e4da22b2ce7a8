"""Programs to read and to run; they use the client alone."""
