"""Work on stores and backups while no service runs on them.

    python -m metaservice restore …      makes a store from a backup
    python -m metaservice check …        checks a store
    python -m metaservice copy …         copies a store to another place
    python -m metaservice backups …      lists, verifies and deletes the backups of a repository

All exit with 0, with 1 if they refuse or find something, and with 74 if a store or the storage can't be used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.offline.backups import run_backups
from metaservice.offline.restore import run_restore
from metaservice.offline.stores import EXIT_REFUSED, run_check, run_copy
from metaservice.server.process import EXIT_UNUSABLE
from metaservice.shared.log import Logging, set_up_logging
from metaservice.shared.terminal import printable
from metaservice.store.backups.folders import BackupUnusable
from metaservice.store.backups.objects import RepositoryUnreachable
from metaservice.store.port import StoreFailed, StoreGone, StoreUnusable

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "restore": run_restore,
    "check": run_check,
    "copy": run_copy,
    "backups": run_backups,
}


def main(command: str, arguments: Sequence[str]) -> int:
    set_up_logging(Logging())
    try:
        return COMMANDS[command](arguments)
    except (MetaError, BackupUnusable) as error:
        sys.stderr.write(f"laketx {command}: {printable(str(error))}\n")
        return EXIT_REFUSED
    except RepositoryUnreachable as error:
        refusal = MetaError(ErrorKind.BLOCKED, "BACKUP_UNREACHABLE", found=error)
        sys.stderr.write(f"laketx {command}: {printable(str(refusal))}\n")
        return EXIT_UNUSABLE
    except (StoreUnusable, StoreFailed, StoreGone, OSError) as error:
        sys.stderr.write(f"laketx {command}: {printable(str(error))}\n")
        return EXIT_UNUSABLE
