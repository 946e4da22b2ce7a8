"""Commands that show rows, `laketx sql` with Spark, `laketx head`, `count` and `export` without; and `laketx load`."""
