"""The edge: turns the wire into the service's words and back, and decides nothing."""
