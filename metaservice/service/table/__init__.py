"""Tables and namespaces: create, replace, drop, list, wait for a commit."""
