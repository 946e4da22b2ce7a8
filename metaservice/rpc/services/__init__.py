"""The services of the wire: convert, ask, convert."""
