"""How answers look: tables for people, plain aligned lines in pipes, JSON for programs. Also asks before it destroys.

On a terminal a table shortens ids, and then gives up its least important columns, before it breaks an id over two
lines; in a pipe nothing is cut or wrapped. Data goes to stdout, all else (notes, questions, errors) to stderr.
"""

from __future__ import annotations

import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from google.protobuf.message import Message
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.cli.settings import Settings, version
from metaservice.cli.values import as_json
from metaservice.client import MetaClient
from metaservice.client.folder_service import find_or_start, open_folder
from metaservice.shared.terminal import json_text, printable

UNLIMITED: Final = 1 << 20
GAP: Final = 2
FOLDED_AT_LEAST: Final = 16
ROWS_AT_ONCE: Final = 1_000
LOOK_S: Final = 0.2
Row = Sequence[object]
Answer = Message | Mapping[str, object] | Sequence[object]
Item = TypeVar("Item")
ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BEGINNING: Final = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
SHORTEST: Final = 13  # the milliseconds of a UUIDv7


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` 0 stays at any width; of the others the highest goes first. Text that `folds` may take several lines.

    Ids are cut to what tells them apart where the terminal is too narrow for whole ones.
    """

    name: str
    rank: int = 0
    right: bool = False
    folds: bool = False
    is_id: bool = False


class Session:
    """The context of a command: a client, connected at first use, and a place to print to."""

    def __init__(self, now_us: Callable[[], int], environment: Mapping[str, str]) -> None:
        self.now_us = now_us
        self.environment = environment
        self.settings = Settings(no_color=bool(environment.get("NO_COLOR")))
        self._client: MetaClient | None = None

    @cached_property
    def _console(self) -> Console:
        return build_console(self.settings)

    @cached_property
    def _notes(self) -> Console:
        return build_console(self.settings, stderr=True)

    @property
    def as_json(self) -> bool:
        return self.settings.as_json

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    @property
    def client(self) -> MetaClient:
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self, *, use_session: bool = False, server: str = "") -> MetaClient:
        """A client of its own, which the caller closes; of another address than the command's, if one is given."""
        settings = self.settings
        if settings.folder:
            return open_folder(
                existing(settings.folder),
                principal=settings.user,
                client_name=f"laketx-cli/{version()}",
                retry_budget_s=settings.timeout_s,
            )
        return MetaClient(
            server or settings.server,
            principal=settings.user,
            client_name=f"laketx-cli/{version()}",
            call_timeout_s=settings.timeout_s,
            retry_budget_s=settings.timeout_s,
            use_session=use_session,
        )

    def address(self) -> str:
        """The service's; that of a folder is started where it doesn't run."""
        return find_or_start(existing(self.settings.folder)) if self.settings.folder else self.settings.server

    @property
    def width(self) -> int:
        return self._console.width

    # --------------------------------------------------------------------------------------------------------- print

    def show(self, rendered: RenderableType) -> None:
        self._console.print(rendered)

    def say(self, text: str) -> None:
        """A line of data."""
        self._console.print(Text(printable(text)), soft_wrap=not self.is_terminal)

    def note(self, text: str) -> None:
        """A line for people, apart from the data; --quiet leaves it out."""
        if not self.settings.quiet:
            self._notes.print(Text(printable(text)), style="dim", soft_wrap=not self._notes.is_terminal)

    def done(self, text: str, answer: Answer | None = None) -> None:
        """Reports what a command has changed; as JSON the answer, if any."""
        if not self.as_json:
            if not self.settings.quiet:
                self.say(text)
        elif answer is not None:
            self.show_json(answer)

    def show_answer(self, answer: Answer, text: str) -> None:
        """Prints the answer as JSON, or the text for people."""
        if self.as_json:
            self.show_json(answer)
        else:
            self.say(text)

    def show_pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values below each other; those without a value are left out."""
        rows = [(name, printable(str(value))) for name, value in pairs if value not in ("", None)]
        wide = max((cell_len(name) for name, _ in rows), default=0)
        if self._console.width == UNLIMITED:
            sys.stdout.writelines(f"{_padded(name, wide)}{' ' * GAP}{value}\n" for name, value in rows)
            return
        grid = Table(show_header=False, box=None, padding=(0, GAP, 0, 0), pad_edge=False)
        grid.add_column(width=wide, no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for name, value in rows:
            grid.add_row(Text(name), Text(value))
        self.show(grid)

    def show_rows(self, columns: Sequence[Column], rows: Iterable[Row], title: str = "") -> None:
        """Begins to print when the first thousand rows are there."""
        waiting = iter(rows)
        first = list(islice(waiting, ROWS_AT_ONCE))
        if title:
            self._console.print(Text(printable(title), style="bold"), soft_wrap=True)
        texts = [_texts(row) for row in first]
        shorten = self._shortener(columns, texts)
        texts = list(map(shorten, texts))
        widths = _widths(columns, texts)
        kept = fit(columns, widths, self._console.width)
        if not first and self.is_terminal:
            self.note("there are none")
        if len(kept) < len(columns) and self.is_terminal:
            gone = ", ".join(column.name for number, column in enumerate(columns) if number not in kept)
            self.note(f"hidden columns: {gone} (use -o json)")
        more = (shorten(_texts(row)) for row in waiting)
        folds = any(columns[number].folds for number in kept)
        if folds and sum(widths[number] + GAP for number in kept) - GAP > self._console.width:
            self._print_folded([columns[number] for number in kept], chain(texts, more), kept)
        else:
            self._print_lines(columns, widths, kept, chain(texts, more))

    def _shortener(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Callable[[list[str]], list[str]]:
        """Cuts ids where the terminal is too narrow for all columns."""
        fits = sum(_widths(columns, rows)) + GAP * (len(columns) - 1) <= self._console.width
        if fits or not self.is_terminal:
            return list
        cut = {n: cutter([row[n] for row in rows]) for n, column in enumerate(columns) if column.is_id}
        return lambda row: [cut[n](text) if n in cut else text for n, text in enumerate(row)]

    def show_each(self, columns: Sequence[Column], widths: Sequence[int], rows: Iterable[Row]) -> None:
        """Each row as soon as it is there, in columns of these widths; on a terminal the last one is cut."""
        kept = fit(columns, widths, self._console.width)
        self._print_header(columns, widths, kept)
        for row in rows:
            text = self._line(columns, widths, kept, _texts(row))
            self.write(_cut(text, self._console.width) if self.is_terminal else text)

    def show_list(self, columns: Sequence[Column], items: Iterable[Item], row: Callable[[Item], Row]) -> None:
        """Prints one JSON document, or a row for each item for people."""
        if self.as_json:
            self.show_json(list(items))
        else:
            self.show_rows(columns, map(row, items))

    def show_json(self, answer: Answer) -> None:
        """One document."""
        self.write(json_text(_jsonable(answer), indent=2))

    def show_json_lines(self, answers: Iterable[Answer]) -> None:
        """A document a line, each as soon as it is there."""
        for answer in answers:
            self.write(json_text(_jsonable(answer)))

    def write(self, text: str) -> None:
        """A line for programs, as it is."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def show_failure(self, failure: CommandError) -> None:
        if self.as_json:
            sys.stderr.write(json_text({"error": failure.as_dict()}) + "\n")
            return
        show_failure(self._notes, failure)

    # ----------------------------------------------------------------------------------------------------------- ask

    def agreed(self, verb: str, what: str, answer: Answer, *, yes: bool, dry_run: bool, warning: str = "") -> bool:
        """Whether to go on: a dry run only says what would be done, else the user is asked."""
        if dry_run:
            self.show_answer(answer, f"would {verb} {what}")
            return False
        self.confirm(f"{verb[0].upper()}{verb[1:]} {what}?{warning}", yes=yes)
        return True

    def confirm(self, question: str, *, yes: bool) -> None:
        """Goes on where the user says yes; fails where there is nobody to ask."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise usage_failure(
                f"{question} There is no terminal to ask on", next_step="add --yes to do it, --dry-run to look first"
            )
        sys.stderr.write(f"{printable(question)} [y/N] ")
        sys.stderr.flush()
        while not select.select([sys.stdin], [], [], LOOK_S)[0]:
            pass  # Ctrl-C right before a read that waits would count only after it
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError(Exit.REFUSED, "NOT_CONFIRMED", "nothing was changed", next_step="answer y, or add --yes")

    # --------------------------------------------------------------------------------------------------------- inner

    def _print_lines(
        self, columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], rows: Iterator[list[str]]
    ) -> None:
        self._print_header(columns, widths, kept)
        for row in rows:
            sys.stdout.write(self._line(columns, widths, kept, row) + "\n")
        sys.stdout.flush()

    def _print_header(self, columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int]) -> None:
        names = [column.name if self.is_terminal else column.name.upper() for column in columns]
        self._console.print(Text(self._line(columns, widths, kept, names), style="bold"), soft_wrap=True)

    def _line(self, columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], row: Sequence[str]) -> str:
        cells = [_padded(row[number], widths[number], right=columns[number].right) for number in kept]
        return (" " * GAP).join(cells).rstrip()

    def _print_folded(self, columns: Sequence[Column], rows: Iterator[list[str]], kept: Sequence[int]) -> None:
        while part := list(islice(rows, ROWS_AT_ONCE)):
            table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
            for column in columns:
                justify = "right" if column.right else "left"
                table.add_column(
                    Text(column.name),
                    justify=justify,  # type: ignore[arg-type]
                    overflow="fold",
                    no_wrap=not column.folds,
                )
            for row in part:
                table.add_row(*[Text(row[number]) for number in kept])
            self.show(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()


def existing(folder: str) -> Path:
    """A misspelt path makes no new lake."""
    path = Path(folder)
    if not path.is_dir():
        facts = {"folder": folder}
        raise CommandError(Exit.NOT_FOUND, "FOLDER_MISSING", "there is no such folder", facts, f"mkdir {folder}")
    return path


class Paper(Console):
    """A console that leaves a closed pipe to its caller."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def build_console(settings: Settings, *, stderr: bool = False) -> Console:
    console = Paper(
        stderr=stderr, no_color=settings.no_color, highlight=False, emoji=False, markup=False, width=settings.width
    )
    if settings.width is None and not console.is_terminal:
        console.width = UNLIMITED
    return console


def show_failure(console: Console, failure: CommandError) -> None:
    """Returns the lines of an error: what is wrong, the facts, what to do."""
    is_usage = failure.reason == "USAGE"
    head = failure.message.removeprefix("laketx ") if is_usage else f"{failure.reason}: {failure.message}"
    lines = [Text.assemble(("laketx: ", "bold"), (printable(head), "bold red"))]
    lines += [Text(f"  {name}: {printable(value)}") for name, value in sorted(failure.facts.items())]
    if failure.next_step:
        lines.append(Text(f"  next: {printable(failure.next_step)}"))
    if failure.usage:
        lines.append(Text(f"  {failure.usage}"))
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal)


def fit(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Numbers of the columns to show, in their order: the least important go until the others fit."""
    kept = list(range(len(columns)))

    def needed() -> int:
        least = [min(widths[i], FOLDED_AT_LEAST) if columns[i].folds else widths[i] for i in kept]
        return sum(least) + GAP * (len(kept) - 1)

    while needed() > width:
        least_important = max(kept, key=lambda number: (columns[number].rank, number))
        if columns[least_important].rank == 0:
            break
        kept.remove(least_important)
    return kept


def _texts(row: Row) -> list[str]:
    return [printable(str(cell)) for cell in row]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([cell_len(column.name), *(cell_len(row[number]) for row in rows)]) for number, column in enumerate(columns)
    ]


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def _padded(text: str, width: int, *, right: bool = False) -> str:
    room = " " * max(0, width - cell_len(text))
    return room + text if right else text + room


def _jsonable(answer: object) -> object:
    if isinstance(answer, Message):
        return as_json(answer)
    if isinstance(answer, list | tuple):
        return [_jsonable(item) for item in answer]
    if isinstance(answer, dict):
        return {name: _jsonable(value) for name, value in answer.items()}
    return answer


def cutter(texts: Sequence[str]) -> Callable[[str], str]:
    """Return a function that shortens ids to the shortest length that tells them apart; other texts stay."""
    ids = {text for text in texts if ID.fullmatch(text)}
    whole = len(next(iter(ids), ""))
    length = next((n for n in range(SHORTEST, whole) if len({full_id[:n] for full_id in ids}) == len(ids)), whole)
    return lambda text: text[:length] if ID.fullmatch(text) else text


def whole_id(text: str, newest_first: Iterable[str], what: str) -> str:
    """Return the only id with this beginning; the search stops at ids that are older than any match."""
    if ID.fullmatch(text) or not BEGINNING.fullmatch(text):
        return text
    matches = []
    for full_id in newest_first:
        if full_id.startswith(text):
            matches.append(full_id)
        elif full_id < text:
            break
    if len(matches) > 1:
        facts = {what: text, "first": matches[0], "second": matches[1]}
        raise CommandError(Exit.USAGE, "ID_AMBIGUOUS", f"more than one {what} begins so", facts, "give more of the id")
    return matches[0] if matches else text
