"""Work on stores and backups while no service runs on them."""
