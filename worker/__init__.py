"""The Spark side: the library that users import and the daemon that runs compactions. Nothing is in it yet."""
