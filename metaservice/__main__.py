"""`python -m metaservice`: the server, as `laketx serve` starts it; also `restore`, `check` and `copy` of stores."""

from __future__ import annotations

import sys

from metaservice.server.process import end_process, keep_files_private
from metaservice.server.settings import read_settings
from metaservice.server.wiring import serve

if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        from metaservice.offline import command  # what a service does not need would slow its start

        keep_files_private()
        if sys.argv[1] in command.COMMANDS:
            end_process(command.main(sys.argv[1], sys.argv[2:]))
    end_process(serve(read_settings(sys.argv[1:])))
