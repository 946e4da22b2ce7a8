"""Peers, measured in an environment of their own: N writers, each committing one small registered file at a time.

The work is the same for everyone. A data file is taken as written; a commit registers it, under a name that no commit
had before, in one unpartitioned table. Only metadata is written, nobody looks for the file. Each writer has a handle of
its own on the table, as independent jobs do, and starts the next commit when the last one is acknowledged. A commit
that the peer gives up as a conflict, after the retries of its defaults, is submitted again until it succeeds: that is
what its user would do, and the time until then counts.

Fairness:
- Both peers slow down with every commit that a table has behind it. Theirs is fresh, and the window short.
- Settings are the defaults, except where others serve the peer better: each peer's module says which, and why.
- Several writers run as threads of one process and as processes; the mode with the better median counts.
- What is not durable isn't held against a peer, but noted: see `durability` in each peer's module.
- At the end the table is read afresh: it holds exactly the commits that were acknowledged, or `verified` is false.
"""

from benchmarks.peers.measuring import PEERS, PeerFigure, PeerRun, measure

__all__ = ["PEERS", "PeerFigure", "PeerRun", "measure"]
