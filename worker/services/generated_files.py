"""Files that the Iceberg catalog generates in a table's folder. They can be made again, so their age decides.

A server writes a file anew before it is that old, so a file that a server still gives out is never too old.
"""

from __future__ import annotations

from typing import Final

DAY_S: Final = 86_400
FOLDER: Final = "_iceberg/rest"  # below the table's folder
RENEW_S: Final = 1 * DAY_S  # servers forget what they generated, and write it again
KEEP_S: Final = 3 * DAY_S  # the purge deletes older ones
