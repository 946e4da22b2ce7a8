"""How answers look: rich tables for people, one JSON document for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import click
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console, RenderableType
from rich.json import JSON
from rich.table import Table
from rich.text import Text

from metaservice.client import MetaClient

NARROWEST_PIPE = 200


class Session:
    """What a command works with: a client, made when it is first asked for, and a place to print to."""

    def __init__(self, server: str, *, as_json: bool, retry_budget_s: float) -> None:
        self.as_json = as_json
        self._server = server
        self._retry_budget_s = retry_budget_s
        self._client: MetaClient | None = None
        self._console = Console()
        if not self._console.is_terminal:
            self._console.width = max(self._console.width, NARROWEST_PIPE)

    @property
    def client(self) -> MetaClient:
        if self._client is None:
            self._client = MetaClient(
                self._server, client_name="laketx", retry_budget_s=self._retry_budget_s, use_session=False
            )
        return self._client

    def show(self, rendered: RenderableType) -> None:
        self._console.print(rendered)

    def show_rows(self, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
        table = Table(title=title or None, title_justify="left", header_style="bold")
        for column in columns:
            numeric = column.startswith(("+", "-")) or column in NUMBERS
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*[Text(cell) for cell in row])
        self.show(table)

    def show_json(self, answer: Message | Sequence[Message]) -> None:
        content: Any = as_json(answer) if isinstance(answer, Message) else [as_json(item) for item in answer]
        if self._console.is_terminal:
            self.show(JSON.from_data(content))
        else:
            click.echo(JSON.from_data(content).text.plain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()


NUMBERS = frozenset({"version", "buckets", "rebased over", "files", "read version"})
pass_session = click.make_pass_decorator(Session)


def as_json(message: Message) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def when(time_us: int) -> str:
    """Microseconds since 1970 as UTC; nothing for 0, which is "not yet"."""
    if not time_us:
        return ""
    seconds, micros = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{micros:06d}"


def word(name_of: Callable[[Any], str], value: int) -> str:
    """OPERATION_MAJOR_COMPACT is `major compact`; a value that this client doesn't know is its number."""
    try:
        name = name_of(value)
    except ValueError:
        return str(value)
    prefix = name_of(0).removesuffix("UNSPECIFIED")
    return name.removeprefix(prefix).replace("_", " ").lower()
