"""What workers add to the `laketx` command. Imported with every command line: no Spark, no Arrow here."""

from __future__ import annotations

from typing import Final

from metaservice.cli.command import FILE, TABLE, Command, Parser, add_table, add_yes
from metaservice.cli.plugins import later

FILE_JOBS: Final = "worker.files.commands"


def add_warehouse(parser: Parser) -> None:
    parser.add(
        "--warehouse",
        metavar="PATH",
        help="Folder or URI that the data files lie below (LAKETX_WAREHOUSE; default: --folder).",
        completes=FILE,
    )


def purge_arguments(parser: Parser) -> None:
    parser.add(
        "table",
        nargs="?",
        metavar="TABLE",
        help="Name or id; a dropped table by its id. Without it all tables.",
        completes=TABLE,
    )
    add_warehouse(parser)
    add_yes(parser)


def adopt_arguments(parser: Parser) -> None:
    add_warehouse(parser)
    add_yes(parser)


def fsck_arguments(parser: Parser) -> None:
    add_table(parser)
    add_warehouse(parser)
    parser.add("--all", action="store_true", help="Every version that is kept, not the newest and the tagged alone.")
    parser.add("--no-footers", action="store_true", help="Don't open the files: presence and size alone.")
    parser.add("--quarantine", action="store_true", help="Move strays below _quarantine in the table's folder.")


def spark_jar_arguments(parser: Parser) -> None:
    parser.add("--name", metavar="NAME", default="lake", help="What SQL calls the lake (default lake).")
    add_warehouse(parser)


COMMANDS: Final = (
    Command(
        "purge",
        "",
        commands=(
            Command(
                "run",
                "Delete from storage what nothing needs any more.",
                later(FILE_JOBS, "run_purge", extra="spark"),
                purge_arguments,
                details=(
                    "laketx purge run --dry-run\n"
                    "laketx --server meta:7070 purge run shop.orders --warehouse s3://bucket/lake --yes\n"
                    "What is dead the service says, by the metadata (docs/retention.md). A run that was cut off goes\n"
                    "on with the next one. It ends with 1 where a file could not be deleted, and where the warehouse\n"
                    "bears no mark of the service (`laketx warehouse show`)."
                ),
            ),
        ),
    ),
    Command(
        "warehouse",
        "Whose a warehouse is: what deletes files looks at its mark first.",
        commands=(
            Command(
                "show",
                "Show the warehouse's mark beside what the service says.",
                later(FILE_JOBS, "run_show_mark", extra="spark"),
                add_warehouse,
                details="It ends with 1 where they differ, so that nothing may be purged.",
            ),
            Command(
                "adopt",
                "Put the service's mark into a warehouse.",
                later(FILE_JOBS, "run_adopt", extra="spark"),
                adopt_arguments,
                details=(
                    "laketx --server meta:7070 warehouse adopt --warehouse s3://bucket/lake\n"
                    "Writers put it there by themselves. This is for what they can't know: data of an earlier release\n"
                    "with files missing, a warehouse that moved without its mark, a service that was restored from a\n"
                    "backup. Only when no other service, and no other history of this one, uses these files."
                ),
            ),
        ),
    ),
    Command(
        "spark-jar",
        "Show the jar of the Spark catalog, and the settings with which a session knows the lake.",
        later("worker.files.spark_settings", "run_spark_jar", extra="spark"),
        spark_jar_arguments,
        details=(
            "laketx --folder lake spark-jar\n"
            "laketx --server meta:7070 spark-jar --warehouse s3a://bucket/lake\n"
            "A line a setting, as spark-defaults.conf takes them. A session must start with the jar: ADD JAR is too\n"
            "late. See docs/spark-sql.md."
        ),
    ),
    Command(
        "fsck",
        "Compare a table's metadata with its files, both ways; ends with 7 where they differ.",
        later(FILE_JOBS, "run_fsck", extra="spark"),
        fsck_arguments,
        details=(
            "laketx fsck shop.orders\n"
            "laketx fsck shop.orders --all --quarantine\n"
            "What is found: a word, a path and facts, see docs/operations.md. Nothing is deleted. With `-o json` a\n"
            "document a line, the last one with the counts."
        ),
    ),
)
