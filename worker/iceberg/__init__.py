"""Iceberg's metadata made from LakeTX's, which other engines read tables by. A client of the service, no part of it."""
