"""Commands of another release: they import a name that is gone."""

from metaservice.cli.command import gone_since  # type: ignore[attr-defined]

COMMANDS = (gone_since,)
