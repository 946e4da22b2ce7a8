"""A lake's connection: the service, pins of versions, a table as the service describes it."""
