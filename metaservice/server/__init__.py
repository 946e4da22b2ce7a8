"""The process of a service: its settings, its parts, how it starts and ends."""
