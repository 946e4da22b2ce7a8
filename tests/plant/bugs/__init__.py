"""All bugs that are planted, by what they are in."""

from __future__ import annotations

from typing import Final

from tests.plant.bugs import (
    of_branches,
    of_console,
    of_decisions,
    of_edge,
    of_iceberg,
    of_ingest,
    of_periodic_tasks,
    of_service,
    of_stores,
    of_views,
    of_workers,
)

BUGS: Final = (
    *of_decisions.BUGS,
    *of_service.BUGS,
    *of_stores.BUGS,
    *of_edge.BUGS,
    *of_workers.BUGS,
    *of_iceberg.BUGS,
    *of_branches.BUGS,
    *of_console.BUGS,
    *of_views.BUGS,
    *of_ingest.BUGS,
    *of_periodic_tasks.BUGS,
)
