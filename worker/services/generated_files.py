"""Files that the Iceberg catalog generates in a table's folder. They can be made again, so their age decides.

A server writes a file anew before it is that old, so a file that a server still gives out is never too old.
"""

from __future__ import annotations

from typing import Final

from metaservice.shared.fork_files import folder_of_fork
from protos.laketx.v1 import catalog_pb2

DAY_S: Final = 86_400
FOLDER: Final = "_iceberg/rest"  # below the table's folder
REST: Final = "rest"  # likewise, below the folder of a fork's generated files
RENEW_S: Final = 1 * DAY_S  # servers forget what they generated, and write it again
KEEP_S: Final = 3 * DAY_S  # the purge deletes older ones


def folder_of(meta: catalog_pb2.Table) -> str:
    """The folder of a table's generated files, below the folder of its data. That of a fork is another table's."""
    return f"{folder_of_fork(meta.table_id)}/{REST}" if meta.folder_id else FOLDER
