"""Iceberg's metadata for tables of LakeTX, for other engines. A client of the service, not a part of it."""
