"""`laketx help`: the help of a command."""

from __future__ import annotations

import sys

from metaservice.cli.command import COMMAND_WORD, Arguments, Command, Parser
from metaservice.cli.output import Session


def arguments(parser: Parser) -> None:
    parser.add("words", nargs="*", metavar="CMD", help="The command.", completes=COMMAND_WORD)


def run(session: Session, args: Arguments) -> None:
    del session
    sys.stdout.write(args.root.find(args.words).format_help())


COMMAND = Command("help", "Show the help of a command.", run, arguments)
