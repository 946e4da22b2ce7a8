"""CSV, JSON, Avro and Parquet files to and from Arrow."""
