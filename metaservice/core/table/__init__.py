"""Tables: columns, properties, partitions, entries, and conditions on rows."""
