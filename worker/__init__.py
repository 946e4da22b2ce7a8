"""The Spark side: tables written, changed and read with DataFrames. Programs import it as `laketx`."""
