"""`laketx worker`: becomes the worker of table services."""

from __future__ import annotations

from metaservice.cli.command import Passing, command
from metaservice.cli.output import Session
from metaservice.cli.serve import become


@command("worker", kind=Passing)
def run(session: Session, options: tuple[str, ...]) -> None:
    """Run compactions that the service plans, and refresh materialized views by their schedules.

    laketx worker --server meta:7070 --warehouse s3://bucket/lake
    laketx worker --server meta:7070 --warehouse s3a://bucket/lake --spark
    It needs no Spark: the work is done in processes of this machine, or with --spark on the executors of a session.
    """
    del session
    become("laketx.commands.worker", *options)
