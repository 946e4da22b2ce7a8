"""The Spark side: reads and writes tables with DataFrames. Users import it as `laketx`."""
