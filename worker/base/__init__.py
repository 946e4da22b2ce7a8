"""What the whole worker stands on: values, schemas, conditions, storage, the connection, the Spark session."""
