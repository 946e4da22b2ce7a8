"""What a worker does beside the tasks of table services: derived files, views, and periodic tasks."""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING

from worker.base.lazy_modules import LazyModule
from worker.connection.lake_connection import Connection
from worker.services.deletion_vectors import VectorKeeper
from worker.services.keepers import IDLE_S
from worker.services.key_indexes import KeyIndexKeeper
from worker.services.key_scope_checks import KeyScopeChecker

if TYPE_CHECKING:
    from worker.periodic import scheduler
    from worker.services.compaction.daemon import Companion
    from worker.views import refresher
else:
    refresher = LazyModule("worker.views.refresher")
    scheduler = LazyModule("worker.periodic.scheduler")

log = logging.getLogger("laketx.worker")


def companions_of(
    lake: Connection,
    *,
    vectors: bool = True,
    key_index: bool = True,
    views: bool = True,
    periodic: bool = True,
    spark: bool = False,
    idle_s: float = IDLE_S,
) -> list[Companion]:
    """Return what runs beside a worker's tasks. Refreshes and periodic tasks need the packages of laketx[views].

    `spark`: periodic tasks in Spark's SQL run, too.
    """
    companions: list[Companion] = [VectorKeeper(lake, idle_s=idle_s)] if vectors else []
    companions += [KeyIndexKeeper(lake, idle_s=idle_s), KeyScopeChecker(lake, idle_s=idle_s)] if key_index else []
    has_engine = all(importlib.util.find_spec(package) is not None for package in ("duckdb", "sqlglot"))
    if views and has_engine:
        companions.append(refresher.ViewRefresher(lake))
    if periodic and has_engine:
        companions.append(scheduler.TaskScheduler(lake, spark=spark))
    if (views or periodic) and not has_engine:
        log.info("views are not refreshed here, and periodic tasks are not run: pip install 'laketx[views]'")
    return companions
