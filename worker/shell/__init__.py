"""`laketx sql`: statements from options, files, pipes or a prompt, and their rows."""
