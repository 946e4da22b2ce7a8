"""The options that choose a version of a table."""

from __future__ import annotations

from typing import Final

from metaservice.cli.command import Parser, whole

VERSION_MAX: Final = 2**62
COMMITS_AGO_MAX: Final = 10_000


def add_version(parser: Parser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--version", type=whole(0, VERSION_MAX), metavar="N", help="An ID version; default: the newest.")
    group.add_argument("--at", metavar="TIME", help='A time: "2026-11-21 15:04:05" (UTC), "10m ago", "now".')
    group.add_argument(
        "--ago",
        type=whole(0, COMMITS_AGO_MAX),
        metavar="N",
        help="So many logical commits back; compactions and ALTERs don't count.",
    )
    group.add_argument("--tag", metavar="NAME", help="The version that a tag names.")
