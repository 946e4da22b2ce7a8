"""What workers add to the `laketx` command. Imported with every command line: no Spark, no Arrow here."""

from __future__ import annotations

from typing import Final

from metaservice.cli.command import Command

COMMANDS: Final[tuple[Command, ...]] = ()
