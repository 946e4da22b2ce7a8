"""The Spark session: its settings, its types, the jar of the catalog, and the Java that runs it."""
