"""Everything that touches rows and files: the Arrow engine, the Spark catalog, table services, Iceberg and imports."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Say where the name is that pages once imported from here."""
        if name == "connect":
            raise ImportError("worker.connect is laketx.connect: `import laketx`")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
