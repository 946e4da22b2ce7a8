"""`python -m metaservice`: the server, as `laketx serve` starts it."""

from __future__ import annotations

import sys

from metaservice.config import read_settings
from metaservice.wiring import serve

if __name__ == "__main__":
    sys.exit(serve(read_settings(sys.argv[1:])))
