"""The worker's log `laketx.worker`: each line names a table, a version and, for a write, its transaction.

The same facts are attributes of the record (`table`, `version`, `txn_id`), for handlers that write JSON.
"""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger("laketx.worker")


def tell(event: str, *, table: str, version: int, txn_id: str = "", level: int = logging.INFO) -> None:
    """Logs an event such as "insert committed"."""
    facts = {"table": table, "version": version, "txn_id": txn_id}
    by = f", transaction {txn_id}" if txn_id else ""
    log.log(level, "%s: table %s, version %d%s", event, table, version, by, extra=facts)
