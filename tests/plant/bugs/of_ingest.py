"""Bugs of change streams, of what follows them, and of loads by dlt."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

CHANGES = "worker/arrow/write/change_streams.py"
DEBEZIUM = "worker/formats/debezium.py"
KAFKA = "laketx/commands/kafka_consumer.py"
REGISTRY = "worker/formats/schema_registry.py"
AVRO = "worker/formats/avro_messages.py"
DLT_CHAINS = "laketx/dlt/chains.py"
DLT_MERGES = "laketx/dlt/merges.py"
HISTORIES = ("tests/arrow/test_change_streams.py", "-k", "any_history")

BUGS: Final = (
    Bug(
        "partial updates set the columns of the deletes beside them",
        "worker/arrow/write/change_streams.py",
        (
            (
                "return [{name: value for name, value in row.items() if name.lower() in columns_set} for row in rows]",
                "return rows",
            ),
        ),
        own_tests=("tests/arrow/test_partial_updates.py", "-m", "not long", "-k", "of_a_stream"),
    ),
    Bug(
        "partial updates of Debezium set the columns of the deletes beside them",
        "worker/formats/debezium.py",
        (("if name.lower() in needed}", "}"),),
        own_tests=("tests/arrow/test_debezium.py", "-m", "not long", "-k", "partial_updates"),
    ),
    Bug(
        "a change that is older than the stored row replaces it",
        CHANGES,
        (("(both[SEQUENCE] > given).fill_null(False)", "(both[SEQUENCE] > given) & False"),),
        own_tests=HISTORIES,
    ),
    Bug(
        "of two changes of one key the one that came last counts",
        CHANGES,
        (("frame.sort(SEQUENCE, AT)", "frame.sort(AT)"),),
        own_tests=HISTORIES,
    ),
    Bug(
        "changes declare no read of the rows that they looked at",
        CHANGES,
        (("OPERATION_MERGE, reads=[common_pb2.Read(predicate=near)])", "OPERATION_MERGE)"),),
        own_tests=("tests/arrow/test_change_streams.py", "-k", "meanwhile"),
    ),
    Bug(
        "a large value that Postgres did not send again is lost",
        DEBEZIUM,
        (('        row = _whole(row, envelope.get("before"), number)\n', "        pass\n"),),
        own_tests=("tests/arrow/test_debezium.py", "-k", "not_sent_again"),
    ),
    Bug(
        "a truncate of the source leaves the earlier rows",
        DEBEZIUM,
        (("            changes, follow_truncate = [], True\n", "            changes = []\n"),),
        own_tests=("tests/arrow/test_debezium.py", "-k", "truncate"),
    ),
    Bug(
        "a process that lost its partition commits what another one has committed",
        KAFKA,
        (("                app_ids_read=[app.app_id for app in apps],\n", ""),),
        own_tests=("tests/arrow/test_ingest_kafka.py", "-k", "race_between"),
    ),
    Bug(
        "a follower of Kafka forgets to look whether the table has moved on",
        KAFKA,
        (("            raise PartitionsMovedError\n", "            return False\n"),),
        own_tests=("tests/arrow/test_ingest_kafka.py", "-k", "lost_its_partition"),
    ),
    Bug(
        "the offsets of Kafka's messages are not committed with the rows",
        KAFKA,
        (("                other_apps=apps,\n", ""),),
        own_tests=("tests/arrow/test_ingest_kafka.py", "-k", "operation_and_sequence"),
    ),
    Bug(
        "while the schema registry is away, messages become dead letters",
        REGISTRY,
        (
            (
                "            raise RegistryAwayError(str(error)) from error\n",
                '            raise InputError("SCHEMA_UNKNOWN", str(error)) from error\n',
            ),
        ),
        own_tests=("tests/arrow/test_ingest_kafka.py", "-k", "waited_for"),
    ),
    Bug(
        "what follows the record of a message of Avro is left out in silence",
        AVRO,
        (("    if end != len(raw):\n", "    if end > len(raw):\n"),),
        own_tests=("tests/arrow/test_schema_messages.py", "-k", "more_items"),
    ),
    Bug(
        "a schema may have items that take no bytes",
        AVRO,
        (("        if part.is_empty:\n", "        if part.is_empty and not depth:\n"),),
        own_tests=("tests/arrow/test_schema_messages.py", "-k", "avro_that_are_refused"),
    ),
    Bug(
        "a load of dlt that is tried again counts twice",
        DLT_CHAINS,
        (("            if keys.num_rows:\n                raise _AlreadyCommittedError\n", ""),),
        own_tests=("tests/arrow/test_dlt.py", "-k", "committed_again"),
    ),
    Bug(
        "rows that are nested in a replaced row stay",
        DLT_MERGES,
        (
            (
                "            removed = _values(old, root.row_key, _root_key(table))\n",
                "            removed = pl.DataFrame()\n",
            ),
        ),
        own_tests=("tests/arrow/test_dlt.py", "-k", "nested_tables_change"),
    ),
    Bug(
        "a row of a slowly changing dimension that ended counts as active",
        DLT_MERGES,
        (("    active = old.filter(pl.col(until).eq_missing(active_until))\n", "    active = old\n"),),
        own_tests=("tests/arrow/test_dlt.py", "-k", "comes_back"),
    ),
)
