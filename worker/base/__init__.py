"""The base of the worker: values, schemas, conditions, storage, the connection, the Spark session."""
