"""The REST catalog of Apache Iceberg over MetaService."""
