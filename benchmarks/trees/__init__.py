"""This tree beside another commit's: the same small units of work of both in turns. `make bench-turns BASE=COMMIT`."""
