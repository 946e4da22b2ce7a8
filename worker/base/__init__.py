"""What every room of the worker uses: errors, values, names of columns, conditions, logs."""
