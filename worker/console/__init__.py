"""The web console: pages about tables, versions, races and table services, for people."""
