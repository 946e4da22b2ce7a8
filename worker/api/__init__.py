"""What users hold: lakes, tables, transactions, cursors."""
