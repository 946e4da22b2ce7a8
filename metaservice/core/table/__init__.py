"""What a table is: its columns, properties, partitions, entries, and conditions on its rows."""
