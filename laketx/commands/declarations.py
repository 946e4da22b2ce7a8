"""What workers add to the `laketx` command. Imported when commands are listed: no Spark, no Arrow here."""

from __future__ import annotations

from typing import Final

import click

from laketx.commands.ingest_declarations import INGEST
from laketx.commands.periodic_declarations import PERIODIC
from laketx.commands.view_declarations import VIEW
from metaservice.cli.command import BranchedCommand, Group, command, group
from metaservice.cli.kinds import FILE, PAIR, SOURCE_TABLE, TABLE, OneOf, whole
from metaservice.cli.output import Session
from metaservice.cli.parameters import (
    asks,
    dry_run_option,
    message_option,
    table_argument,
    version_options,
    warehouse_option,
)
from metaservice.cli.plugins import later

FILE_JOBS: Final = "worker.services.commands"
ROWS: Final = "laketx.commands.head"
PARQUET: Final = "parquet"
PURGE: Final = group("purge", "Delete files that nothing needs any more.")
WAREHOUSE: Final = group(
    "warehouse", "Show or set the mark of the service that owns a warehouse; commands that delete files check it."
)


TABLES: Final = group("table", "List, show, make, alter and drop tables.")


columns_option = click.option("--columns", metavar="NAMES", help="Columns, separated by commas; default: all.")
where_option = click.option("--where", metavar="COND", help="Only the rows for which the condition is true.")


@command("run", PURGE)
@click.argument(
    "table", required=False, type=TABLE, help="Name or id of a table (a dropped one by its id); default: all tables."
)
@warehouse_option
@asks
def run_purge(session: Session, **options: object) -> object:
    """Delete files that no version, reader or transaction needs any more.

    laketx purge run --dry-run
    laketx --server meta:7070 purge run shop.orders --warehouse s3://bucket/lake --yes
    The service decides by the metadata which files are no longer needed (docs/retention.md). The next run continues an
    interrupted run. It ends with 1 if a file could not be deleted, or if the warehouse has no mark of the service
    (`laketx warehouse show`).
    """
    return later(FILE_JOBS, "run_purge", extra="arrow")(session, **options)


@command("show", WAREHOUSE)
@warehouse_option
def run_show_mark(session: Session, **options: object) -> object:
    """Compare the warehouse's mark with the service's.

    laketx warehouse show --warehouse s3://bucket/lake
    It ends with 1 if they differ; then nothing may be purged.
    """
    return later(FILE_JOBS, "run_show_mark", extra="arrow")(session, **options)


@command("adopt", WAREHOUSE)
@warehouse_option
@asks
def run_adopt(session: Session, **options: object) -> object:
    """Put the service's mark into a warehouse.

    laketx --server meta:7070 warehouse adopt --warehouse s3://bucket/lake
    Writers do this automatically. The command is for cases that they can't recognise: data of an earlier release with
    files missing, a warehouse that moved without its mark, a service that was restored from a backup. Adopt a warehouse
    only when no other service, and no other history of this one, uses its files.
    """
    return later(FILE_JOBS, "run_adopt", extra="arrow")(session, **options)


@command("head")
@table_argument
@columns_option
@where_option
@version_options
@click.option("-n", "--limit", type=whole(1, 1 << 31), default=10, help="Rows to show (default 10).")
@warehouse_option
def run_head(session: Session, **options: object) -> object:
    """Show some rows of a table.

    laketx --folder lake head shop.orders
    laketx head shop.orders --columns id,amount --where "day = '2026-11-01' AND amount > 15" -n 50 --version 41
    laketx --server meta:7070 head shop.orders --warehouse s3://bucket/lake -o json
    It needs no Spark. It is unspecified which rows are shown. Conditions are those of `laketx files`. With `-o json` it
    prints one document a line; docs/arrow.md explains how values are written.
    """
    return later(ROWS, "run_head", extra="arrow")(session, **options)


@command("count")
@table_argument
@where_option
@version_options
@warehouse_option
def run_count(session: Session, **options: object) -> object:
    """Count the rows of a table, without hidden rows.

    laketx --folder lake count shop.orders
    laketx count shop.orders --where "amount > 15" --ago 1
    It needs no Spark. It opens a file only if a condition, a delete or a newer row of the same key may leave out some
    of its rows.
    """
    return later(ROWS, "run_count", extra="arrow")(session, **options)


@command("export")
@table_argument
@click.option("--to", type=FILE, required=True, help="The file to write, on this machine; - is standard output.")
@click.option(
    "--format",
    "form",
    type=OneOf(["csv", "json", "parquet"]),
    help="Default: by the file's name: .csv, .json, .jsonl, .ndjson or .parquet.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@columns_option
@where_option
@version_options
@warehouse_option
def run_export(session: Session, **options: object) -> object:
    """Write the rows of a table into one file: CSV, lines of JSON, or Parquet.

    laketx --folder lake export shop.orders --to orders.csv --columns id,amount
    laketx export shop.orders --to orders.parquet --where "day >= '2026-11-01'" --version 41 --overwrite
    laketx export shop.orders --to - --format json | gzip > orders.json.gz
    It needs no Spark, and never has all rows in memory. The file gets its name when it is complete: an export that
    fails leaves no file. CSV can't contain arrays, maps and structs; docs/arrow.md explains how values are written.
    """
    return later("laketx.commands.export", "run_export", extra="arrow")(session, **options)


@command("load")
@table_argument
@click.argument("files", nargs=-1, required=True, type=FILE, help="Files on this machine; - is standard input.")
@click.option(
    "--format",
    "form",
    type=OneOf(["csv", "json", "parquet", "arrow"]),
    help="Default: by each file's name: .csv, .json, .jsonl, .ndjson, .parquet, .arrow, .arrows, .feather or .ipc.",
)
@click.option("--overwrite", is_flag=True, help="Replace all rows of the table, or those of --partition.")
@click.option("--partition", metavar="PARTITION", help="The partition to replace, such as day=2026-11-01.")
@click.option(
    "--create", is_flag=True, help="Make a missing table, with the columns of the first Parquet or Arrow file."
)
@click.option(
    "--on-conflict",
    type=OneOf(["fail", "resubmit", "rerun"]),
    help="After a lost race: fail, commit the same files again, or read the rows again (default: the table's property; "
    "or else fail with --overwrite, resubmit without).",
)
@click.option("--app-id", metavar="NAME", help="With --app-version: load once, however often it is repeated.")
@click.option("--app-version", type=whole(0, (1 << 63) - 1), help="A number that grows with each load of --app-id.")
@message_option
@dry_run_option
@warehouse_option
def run_load(session: Session, **options: object) -> object:
    """Load the rows of files into a table: CSV with a header line, lines of JSON, Parquet or Arrow.

    laketx --folder lake load shop.orders orders.csv more.csv
    laketx load shop.orders - --format json --app-id nightly --app-version 20261101 < orders.json
    laketx load shop.orders day.parquet --overwrite --partition day=2026-11-01 --dry-run
    It needs no Spark. An append table gets the rows, a primary-key table upserts them. All files are one commit: a
    value that doesn't fit is refused with its line and column, and nothing is written. Cells are typed by the table's
    columns; docs/arrow.md explains how values are written. Appended rows are read part by part; upserts are held in
    memory.
    """
    return later("laketx.commands.load", "run_load", extra="arrow")(session, **options)


@command("spark-jar")
@click.option("--name", metavar="NAME", default="lake", help="Name of the lake in SQL (default lake).")
@warehouse_option
def run_spark_jar(session: Session, **options: object) -> object:
    """Show the jar of the Spark catalog and the settings that a session needs.

    laketx --folder lake spark-jar
    laketx --server meta:7070 spark-jar --warehouse s3a://bucket/lake
    It prints one setting a line, in the format of spark-defaults.conf. A session must start with the jar: ADD JAR is
    too late. See docs/spark-sql.md.
    """
    return later("laketx.commands.spark_settings", "run_spark_jar", extra="spark")(session, **options)


@command("sql", kind=BranchedCommand)
@click.option("-e", "--execute", multiple=True, metavar="SQL", help="Run these statements and end; may be repeated.")
@click.option("-f", "--file", type=FILE, help="Run the statements of a file and end; - is standard input.")
@click.option("--remote", metavar="URL", default="", help="A Spark Connect server, such as sc://spark:15002.")
@warehouse_option
@click.option("--limit", type=whole(0, 1 << 31), help="Rows to print; 0: all (default 1000 in a table, else all).")
@click.option("--csv", is_flag=True, help="Print rows as CSV, with a line of names.")
@click.option("--keep-going", is_flag=True, help="Continue after a statement that fails.")
def run_sql(session: Session, **options: object) -> object:
    """Run Spark SQL on the tables: at a prompt, or from --execute, --file or a pipe.

    laketx --folder lake sql
    laketx --folder lake sql -e "SELECT count(*) FROM shop.orders" -o json
    laketx --server meta:7070 sql --warehouse s3a://bucket/lake -f nightly.sql --keep-going
    laketx sql --remote sc://spark:15002
    laketx --folder lake sql --branch etl -f nightly.sql
    It starts a Spark session, or uses the Spark Connect server of --remote, which must run with the jar
    (`laketx spark-jar`). The tables are in the catalog `lake`, which is the current catalog; if a server already has
    that catalog, its tables are used. With --branch the session starts on a branch (`SET spark.laketx.branch`). Rows go
    to stdout, times and errors to stderr. The prompt completes names with Tab and keeps a history.
    """
    return later("laketx.commands.sql", "run_sql", extra="spark")(session, **options)


class Imports(Group):
    """A first word that is none of its commands is the path of Parquet files."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            args = [PARQUET, *args]
        return super().resolve_command(ctx, args)


IMPORT: Final = group("import", "Import files and tables in place: nothing is copied.", Imports)


@command(PARQUET, IMPORT)
@click.argument("path", type=FILE, help="Folder, file or URI of the Parquet files.")
@click.argument("table", type=TABLE, help="Name of the table; a missing one is created.")
@warehouse_option
@message_option
def run_import(session: Session, **options: object) -> object:
    """Register Parquet files as files of a table where they are.

    laketx --folder lake import /arrivals/2026-11 shop.orders
    laketx --server meta:7070 import s3://bucket/orders shop.orders --warehouse s3://bucket/lake
    Nothing is copied, and no purge deletes the files. A missing table is created with the columns of the first file;
    folders like `day=2026-11-01` become partitions. `parquet` can be left out, unless the path is the name of another
    of these commands.
    """
    return later("laketx.commands.import_parquet", "run_import", extra="spark")(session, **options)


as_option = click.option(
    "--as", "name", type=TABLE, help="Name of the table in LakeTX; default: its name at the source."
)


@command("iceberg", IMPORT)
@click.argument(
    "catalog",
    metavar="CATALOG",
    type=FILE,
    help="URI of the catalog: http(s)://… (REST), sqlite:///…; or a table's metadata file or folder.",
)
@click.argument(
    "table", type=SOURCE_TABLE, help="Name of the table in the catalog; for a metadata file, its name in LakeTX."
)
@as_option
@click.option(
    "--option", "catalog_options", multiple=True, type=PAIR, help="A setting of pyiceberg, such as warehouse=main."
)
@warehouse_option
@message_option
@dry_run_option
def run_import_iceberg(session: Session, **options: object) -> object:
    """Import the current version of an Apache Iceberg table; a repeated run imports later changes.

    laketx --folder lake import iceberg http://catalog:8181 shop.orders
    laketx --folder lake import iceberg sqlite:////catalogs/main.db shop.orders --as old.orders --dry-run
    laketx --folder lake import iceberg /tables/orders/metadata/v7.metadata.json shop.orders
    Columns, partitions, properties, statistics and deleted rows are imported; the files stay where they are. Set
    secrets as for pyiceberg, for a catalog named laketx: PYICEBERG_CATALOG__LAKETX__TOKEN. docs/import.md lists what is
    refused.
    """
    return later("worker.imports.command", "run_iceberg", extra="imports")(session, **options)


@command("delta", IMPORT)
@click.argument("path", type=FILE, help="Folder or URI of the table.")
@as_option
@warehouse_option
@message_option
@dry_run_option
def run_import_delta(session: Session, **options: object) -> object:
    """Import the current version of a Delta Lake table; a repeated run imports later changes.

    laketx --folder lake import delta /tables/orders --as shop.orders
    laketx --server meta:7070 import delta s3://bucket/orders --warehouse s3://bucket/lake --dry-run
    Columns, partitions, properties, statistics and deleted rows are imported; the files stay where they are. Without
    --as the table has the name of its folder. docs/import.md lists what is refused.
    """
    return later("worker.imports.command", "run_delta", extra="arrow")(session, **options)


@command("fsck")
@table_argument
@warehouse_option
@click.option("--all", "every", is_flag=True, help="Check every kept version, not only the newest and tagged versions.")
@click.option("--no-footers", is_flag=True, help="Don't open the files: compare presence and size only.")
@click.option("--quarantine", is_flag=True, help="Move strays below _quarantine in the table's folder.")
@click.option("--deep", is_flag=True, help="Read all rows: are they those of the metadata, and is no key there twice?")
def run_fsck(session: Session, **options: object) -> object:
    """Compare a table's metadata with the files on storage; ends with 7 if they differ.

    laketx fsck shop.orders
    laketx fsck shop.orders --all --quarantine
    laketx fsck shop.orders --deep
    Each finding is a word, a path and facts (docs/operations.md). Nothing is deleted. With `-o json` it prints one
    document a line, the last one with the counts.
    """
    return later(FILE_JOBS, "run_fsck", extra="arrow")(session, **options)


@command("check-keys")
@table_argument
@warehouse_option
def run_check_keys(session: Session, **options: object) -> object:
    """Check the keys of a table that shall be unique across partitions.

    laketx check-keys shop.orders
    It goes on with the check that begins when `table alter` sets key.scope to table; a worker does so, too. Each key
    that stands in several partitions is shown. Buckets that are done are not checked again. When all are, the promise
    begins. It ends with 1 as long as keys stand in its way.
    """
    return later("worker.services.key_scope_command", "run_check_keys", extra="arrow")(session, **options)


@command("console")
@click.option("--listen", default="127.0.0.1:8480", help="Address; port 0 picks a free one (default 127.0.0.1:8480).")
@click.option("--tls-cert", type=FILE, default="", help="The certificate and intermediate certificates, in PEM.")
@click.option("--tls-key", type=FILE, default="", help="The certificate's key, in PEM.")
@click.option("--beside-service", is_flag=True, help="End with the standard input, as `laketx serve --console` needs.")
@click.option("--public-url", default="", help="Where people reach the console, if that is another address.")
@click.option("--oidc-issuer", default="", help="OpenID Connect provider where people log in (LAKETX_OIDC_ISSUER).")
@click.option("--oidc-client-id", default="", help="The console's id there (LAKETX_OIDC_CLIENT_ID).")
@click.option("--oidc-client-secret-file", type=FILE, default="", help="File with its secret, if it has one.")
@click.option("--oidc-scopes", default="", help='What to ask for (default "openid").')
@click.option("--oidc-token-kind", type=OneOf(["id", "access"]), help="Which token the service gets (default id).")
@click.option("--oidc-ca", type=FILE, default="", help="Authorities that the provider's certificate may be of, in PEM.")
@warehouse_option
def run_console(session: Session, **options: object) -> object:
    """Serve the web console: tables, timelines, races, branches, retention and table services, to look at.

    laketx --folder lake console
    laketx --server laketxs://meta:7070 console --warehouse s3://bucket/lake
    It prints the address to open. For a folder, or a service that asks for no tokens, the address opens one session;
    after its use another address is printed. For other services you log in with a token, or at the provider of
    OpenID Connect, and see and do what your rights allow. Without a warehouse the console shows no rows. To listen
    beyond this machine it needs TLS and tokens. Each --oidc-… can be set as LAKETX_OIDC_…, and --public-url as
    LAKETX_PUBLIC_URL.
    """
    return later("worker.console.command", "run_console", extra="console")(session, **options)


@command("detach", TABLES)
@table_argument
@warehouse_option
@message_option
def run_detach(session: Session, **options: object) -> object:
    """Rewrite the files that a clone shares with the table that it was made of.

    laketx table detach test.orders
    The rows stay the same. When the retention of the clone has given up its older versions, the clone keeps nothing of
    that table any more (docs/branches.md). If it was interrupted, the next run goes on.
    """
    return later("laketx.commands.detach", "run_detach", extra="arrow")(session, **options)


COMMANDS: Final = (
    TABLES,
    PURGE,
    WAREHOUSE,
    run_head,
    run_count,
    run_export,
    run_load,
    run_spark_jar,
    run_sql,
    IMPORT,
    run_fsck,
    run_check_keys,
    run_console,
    VIEW,
    PERIODIC,
    INGEST,
)
