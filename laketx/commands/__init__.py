"""Commands of `laketx` that use the API: SQL, head, count, load, export, and the worker of table services."""
