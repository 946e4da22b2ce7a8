"""Engines that read and write Iceberg, each in an environment of its own."""
