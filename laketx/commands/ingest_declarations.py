"""The commands that follow streams. Imported when commands are listed: nothing heavy."""

from __future__ import annotations

from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.kinds import FILE, PAIR, TABLE, OneOf, seconds, whole
from metaservice.cli.output import Session
from metaservice.cli.parameters import warehouse_option
from metaservice.cli.plugins import later

INGEST: Final = group("ingest", "Follow a stream of messages into a table.")


@command("kafka", INGEST)
@click.option("--brokers", required=True, metavar="HOST:PORT,…", help="Addresses of brokers, separated by commas.")
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@click.option("--table", required=True, type=TABLE, help="Name or id of the table.")
@click.option("--group", "group", default="laketx", metavar="NAME", help="The consumer group (default laketx).")
@click.option(
    "--format",
    "form",
    type=OneOf(["json", "avro", "protobuf", "debezium"]),
    default="json",
    help="What the values are (default json). Avro and Protobuf need --registry.",
)
@click.option("--registry", metavar="URL", help="The schema registry that knows the schemas of the messages.")
@click.option(
    "--registry-secret-file",
    type=FILE,
    help="A file with `user:password` or a token for the registry (LAKETX_REGISTRY_SECRET has its content instead).",
)
@click.option(
    "--registry-ca-file", type=FILE, help="The authorities that the registry's certificate is checked by, in PEM."
)
@click.option("--op", metavar="NAME", help="The field of a message that has its operation.")
@click.option(
    "--sequence",
    metavar="NAME",
    help="The field that orders the changes of a key; of Debezium's messages a field of source, such as lsn.",
)
@click.option("--soft-delete", metavar="NAME", help="A boolean column: deleted rows stay, and have true there.")
@click.option(
    "--merge-schema", is_flag=True, help="Add columns that the messages have and the table lacks, as their schemas say."
)
@click.option(
    "--from",
    "begin",
    type=OneOf(["earliest", "latest"]),
    default="earliest",
    help="Where a group begins that the table doesn't know (default earliest).",
)
@click.option(
    "--batch-rows", type=whole(1, 10_000_000), default=10_000, help="Commit after this many messages (default 10000)."
)
@click.option(
    "--batch-bytes",
    type=whole(1, 1 << 40),
    default=64 << 20,
    help="Commit after this many bytes of messages (default 67108864).",
)
@click.option(
    "--batch-seconds", type=seconds(0, 3600), default=1.0, help="Commit when the first message is so old (default 1)."
)
@click.option("--dead-letters", type=FILE, help="The file for messages that can't be read, as lines of JSON.")
@click.option("--dead-letter-topic", metavar="NAME", help="The topic for such messages.")
@click.option("--until-end", is_flag=True, help="End when all messages that are there have been committed.")
@click.option(
    "--set", "kafka_settings", multiple=True, type=PAIR, help="A setting of librdkafka, such as security.protocol=SSL."
)
@warehouse_option
def run_kafka(session: Session, **options: object) -> object:
    """Follow a topic of Kafka into a table, each message exactly once.

    laketx --folder lake ingest kafka --brokers kafka:9092 --topic orders --table shop.orders
    laketx ingest kafka --brokers kafka:9092 --topic pg.public.orders --table shop.orders --format debezium
    The table keeps the offsets: they are committed with the rows. Several processes of a group share the partitions. It
    runs until SIGTERM or Ctrl-C, then commits what it has. Without a place for dead letters it ends at the first
    message that can't be read. docs/ingest.md says more.
    """
    return later("laketx.commands.ingest", "run_kafka", extra="kafka")(session, **options)
