"""MetaService: decides, one at a time, whether a change may follow a table's log, and makes the decision durable.

Layers, each importing only what stands below it: `rpc`, `service`, `store`, `core`. Beside them, `client` and `cli`
reach the service over the wire alone.
"""
