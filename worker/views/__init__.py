"""Materialized views: queries parsed, delta plans as SQL text, refreshes and proofs by DuckDB over Arrow."""
