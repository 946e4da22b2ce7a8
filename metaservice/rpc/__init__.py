"""The edge: converts between the wire and the service's types, and decides nothing."""
