"""The prompt: lines with history and completion. A statement runs when its `;` is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx.commands.sql_text import is_complete

NAMES_KEPT_S: Final = 10.0
LEAVE: Final = ("exit", "quit", "\\q")
HELP: Final = ("help", "\\h", "?")
HELP_TEXT: Final = """\
A statement ends with ; and may take several lines.
  SHOW TABLES;  DESCRIBE TABLE orders;  SELECT * FROM orders VERSION AS OF 3;
  CALL lake.system.history('shop.orders');
Tab completes words, tables and columns. Up and Ctrl-R find earlier statements.
Ctrl-C ends a statement that runs, or clears the line. `exit` or Ctrl-D leaves."""
WORDS: Final = """
ALTER AND AS ASC BETWEEN BY CALL CASE CAST COLUMN COMMENT CREATE CROSS DATE DELETE DESC DESCRIBE DISTINCT DROP ELSE
END EXISTS EXPLAIN FROM FULL GROUP HAVING IN INNER INSERT INTERVAL INTO IS JOIN LEFT LIKE LIMIT MATCHED MERGE
NAMESPACE NOT NULL OFFSET ON OR ORDER OUTER OVER OVERWRITE PARTITION PARTITIONED PRIMARY RENAME REPLACE RIGHT SELECT
SET SHOW TABLE TABLES TBLPROPERTIES THEN TIMESTAMP TRUNCATE UNION UPDATE USE USING VALUES VERSION VIEW WHEN WHERE
WITH
"""


def new_prompt(names: Callable[[], Iterable[str]], history: Path) -> PromptSession[str]:
    """Enter runs what is complete, and begins another line otherwise."""
    keys = KeyBindings()

    @keys.add("enter", filter=Condition(lambda: not prompt.default_buffer.complete_state))
    def run_or_go_on(event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        if text.strip() in (*LEAVE, *HELP) or is_complete(text):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    prompt: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=ThreadedCompleter(Names(names)),
        complete_while_typing=False,
        key_bindings=keys,
        multiline=True,
        prompt_continuation=lambda width, *_: " " * (width - 2) + "> ",
    )
    return prompt


class Names(Completer):
    """SQL's words, and the names that the catalog has."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        word = document.get_word_before_cursor(pattern=None, WORD=True).rpartition("(")[2].rpartition(",")[2]
        if not word:
            return
        lowered = word.lower()
        words = (each.lower() if word.islower() else each for each in WORDS.split())
        for each in (*self._names(), *words):
            if each.lower().startswith(lowered):
                yield Completion(each, start_position=-len(word))


class CatalogNames:
    """Namespaces, tables and the columns of the current namespace's tables, asked for at most once in ten seconds."""

    def __init__(self, spark: SparkSession, now_s: Callable[[], float] = time.monotonic) -> None:
        self._spark = spark
        self._now_s = now_s
        self._names_kept: list[str] = []
        self._until_s = float("-inf")

    def __call__(self) -> list[str]:
        now_s = self._now_s()
        if now_s >= self._until_s:
            self._names_kept = sorted(set(self._read()))
            self._until_s = now_s + NAMES_KEPT_S
        return self._names_kept

    def _read(self) -> Iterator[str]:
        for (space,) in self._rows("SHOW NAMESPACES"):
            yield str(space)
            for row in self._rows(f"SHOW TABLES IN {space}"):
                yield f"{space}.{row[1]}"
        current = self._spark.catalog.currentDatabase()
        for row in self._rows("SHOW TABLES"):
            yield str(row[1])
            for column in self._rows(f"SHOW COLUMNS IN {current}.{row[1]}"):
                yield str(column[0])

    def _rows(self, statement: str) -> list[tuple[object, ...]]:
        try:
            return [tuple(row) for row in self._spark.sql(statement).collect()]
        except PySparkException:  # a name less to complete
            return []


def read_statements(prompt: PromptSession[str], ask: Callable[[], str], say: Callable[[str], None]) -> Iterator[str]:
    """What people type, until they leave; `ask` is what stands before the line."""
    while True:
        try:
            text = prompt.prompt(partial(_shown, ask))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        word = text.strip().rstrip(";").lower()
        if word in LEAVE:
            return
        if word in HELP:
            say(HELP_TEXT)
        elif word:
            yield text


def _shown(ask: Callable[[], str]) -> str:
    return f"{ask()}> "
