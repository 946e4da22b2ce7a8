"""What Iceberg adds to the `laketx` command. Imported when commands are listed: no Arrow, no Avro here."""

from __future__ import annotations

from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.kinds import FILE, OneOf
from metaservice.cli.output import Session
from metaservice.cli.parameters import table_argument, version_options, warehouse_option
from metaservice.cli.plugins import later

ICEBERG: Final = group("iceberg", "Show tables to the readers of Apache Iceberg.")


@command("export", ICEBERG)
@table_argument
@click.option("--to", type=FILE, help="Folder or URI to write into; default: _iceberg in the table's folder.")
@click.option("--format", "form", type=OneOf(["2", "3"]), default="3", help="Version of Iceberg's format (default 3).")
@version_options
@warehouse_option
def run_export(session: Session, **options: object) -> object:
    """Write Iceberg metadata of a version, for readers without a catalog. No data is copied.

    laketx --folder lake iceberg export shop.orders
    laketx iceberg export shop.orders --version 41 --format 2 --to /exports/orders
    It prints the place of the metadata file. The data files stay where they are, and the export holds none of them:
    tag the version to keep it readable. Readers that know no deletion vectors need --format 2. docs/iceberg.md lists
    what is refused.
    """
    return later("iceberg.command", "run_export", extra="iceberg")(session, **options)


COMMANDS: Final = (ICEBERG,)
