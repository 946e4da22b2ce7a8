"""MetaService decides, one at a time, whether a change may follow a table's log, and makes the decision durable.

Layers, each importing only those below: `rpc`, `service`, `store`, `core`. Beside them, `client` and `cli` reach the
service only over the wire.
"""

import os

# gRPC's fork handlers abort some children that are forked beside an open channel, Spark's JVM among them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # noqa: TID251 - gRPC's setting, not one of ours
