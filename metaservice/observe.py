"""Names of the events that are logged, one JSON object a line on stderr."""

from __future__ import annotations

import json
import logging
import sys

STARTED = "started"
STOPPED = "stopped"
IDLE = "idle"
BROKEN = "broken_invariant"


def set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger("laketx")
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def event(name: str, **facts: object) -> None:
    logging.getLogger("laketx").info(json.dumps({"event": name, **facts}, default=str))
