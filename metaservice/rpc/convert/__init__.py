"""Messages of the wire <-> core's types. Input is checked here."""
