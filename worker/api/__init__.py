"""The user's objects: lakes, tables, transactions, cursors."""
