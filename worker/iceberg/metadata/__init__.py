"""Pure functions from LakeTX's facts to Iceberg's files: they call no service and open no file."""
