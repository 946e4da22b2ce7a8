"""The locations where external files can be imported from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.external import Location, locate
from metaservice.core.table.model import Entry
from metaservice.service.decider.decider import Decider
from metaservice.store import keys


class Imports:
    """Refuses files in the folder of a table of this service, and files outside the allowed locations.

    A table's folder is found by its name, which is the table's id, wherever the warehouse is mounted and however a
    client spells it. The folders of its transactions are inside.
    """

    def __init__(self, decider: Decider, allowed: Sequence[Location] | None) -> None:
        """`allowed`: None is anywhere."""
        self._decider = decider
        self._allowed = allowed

    def check(self, entries: Iterable[Entry]) -> None:
        """Refuses a path. Any thread."""
        for entry in entries:
            if entry.external:
                self._check(locate(entry.path))

    def _check(self, file: Location) -> None:
        for table_id in file.table_ids:
            if self._is_known(table_id):
                raise invalid(
                    "PATH_IN_LAKE",
                    "the file lies in the folder of a table of this service, which purges it: read that table and "
                    "insert its rows, or copy the file",
                    path=file,
                    table_id=table_id,
                )
        if self._allowed is not None and not any(file.lies_in(place) for place in self._allowed):
            allowed = ", ".join(map(str, self._allowed)) or "none"
            raise MetaError(ErrorKind.BLOCKED, "PATH_NOT_ALLOWED", path=file, allowed=allowed[:500])

    def _is_known(self, table_id: str) -> bool:
        state = self._decider.state
        return table_id in state.tables or state.is_dropped(keys.uuid_bytes(table_id))
