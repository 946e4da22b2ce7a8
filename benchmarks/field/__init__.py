"""LakeTX without Spark beside DuckLake, deltalake and pyiceberg: the same works on the same rows. `make bench-field`.

Each system runs in a process of its own (`child.py`), by the calls that its documents recommend (one module each, after
`system.py`). The works (`works.py`) go in rounds: every system once, then all again, every second round the other way
round. The medians are ranked (`ranking.py`).

Fairness:
- Everybody writes zstd, and keeps to the defaults except where its module says otherwise, and why.
- Writers are processes, except those of a DuckLake whose catalog is a DuckDB file: one process alone can open that.
- A commit that a system gives up, after the retries inside its call, is submitted again. Both are counted.
- Rows are compared: those of every acknowledged commit are there, once; whole tables have the same digest everywhere.
  Who lost or doubled rows, or reads other rows than LakeTX, is left out of the ranking. If LakeTX does, the run fails.
"""
