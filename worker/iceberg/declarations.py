"""What Iceberg adds to the `laketx` command. Imported when commands are listed: no Arrow, no Avro here."""

from __future__ import annotations

from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.kinds import FILE, PAIR, OneOf, seconds, whole
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
    It prints the path of the metadata file. The data files stay where they are, and the export doesn't protect them:
    tag the version to keep it readable. Readers without support for deletion vectors need --format 2. docs/iceberg.md
    lists what is refused.
    """
    return later("worker.iceberg.command", "run_export", extra="iceberg")(session, **options)


@command("serve", ICEBERG)
@click.option("--listen", default="127.0.0.1:8181", help="Address; port 0 picks a free one (default 127.0.0.1:8181).")
@click.option(
    "--tls-cert", type=FILE, default="", help="The server's certificate and intermediate certificates, in PEM."
)
@click.option("--tls-key", type=FILE, default="", help="The certificate's key, in PEM.")
@click.option("--token-file", type=FILE, default="", help="File with the token that callers must show.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without TLS or without tokens.")
@click.option("--snapshots", type=whole(0, 1_000), default=10, help="Earlier versions that a table shows (default 10).")
@click.option(
    "--hold",
    "hold_s",
    type=seconds(60, 3_600),
    default=3_600.0,
    help="Seconds that a version read by a client stays readable (default 3600).",
)
@click.option(
    "--client-config", "given", multiple=True, type=PAIR, help="A setting for every client, such as s3.endpoint=URL."
)
@warehouse_option
def run_serve(session: Session, **options: object) -> object:
    """Serve the Iceberg REST catalog, for engines that read and write Iceberg tables.

    laketx --folder lake iceberg serve
    laketx --server laketxs://meta:7070 iceberg serve --warehouse s3://bucket/lake --listen 0.0.0.0:8181 …
    Callers send a token of the service and have its rights; with --token-file they send that token and have the rights
    of this process. A client's warehouse, v3 or v2, is the version of Iceberg's format; main@NAME is a branch of the
    lake. Any number of servers can run side by side. docs/iceberg.md has an example for each engine.
    """
    return later("worker.iceberg.command", "run_serve", extra="iceberg")(session, **options)


COMMANDS: Final = (ICEBERG,)
