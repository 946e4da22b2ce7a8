"""`python -m metaservice`: the server, as `laketx serve` starts it; also `restore`, `check` and `copy` of stores."""

from __future__ import annotations

import sys

from metaservice.config import read_settings
from metaservice.own_process import end_process, keep_files_private
from metaservice.wiring import serve

if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        from metaservice import offline  # what a service does not need would slow its start

        keep_files_private()
        if sys.argv[1] in offline.COMMANDS:
            end_process(offline.main(sys.argv[1], sys.argv[2:]))
    end_process(serve(read_settings(sys.argv[1:])))
