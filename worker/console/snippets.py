"""What can be done with a version of a table, as SQL, Python and commands to copy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protos.laketx.v1 import catalog_pb2

PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_.@-]+")


@dataclass(frozen=True, slots=True)
class Snippets:
    """One action in the words of several tools: the tool's name, and the text."""

    action: str
    texts: Sequence[tuple[str, str]]


def snippets_of(table: catalog_pb2.Table, version: int) -> list[Snippets]:
    """Reading a version comes first."""
    name, python = table.name, f"lake.table({table.name!r})"
    quoted, word = ".".join(map(sql_name, name.split("."))), shell_word(name)
    text, clone = sql_text(name), f"{name}_clone"
    quoted_clone = ".".join(map(sql_name, clone.split(".")))
    return [
        Snippets(
            "Read",
            [
                ("SQL", f"SELECT * FROM lake.{quoted} VERSION AS OF {version}"),  # noqa: S608 - a text to copy
                ("Python", f"{python}.to_arrow(version={version})"),
                ("Command", f"laketx head {word} --version {version}"),
            ],
        ),
        Snippets(
            "Restore",
            [
                ("SQL", f"CALL lake.system.restore(table => {text}, version => {version})"),
                ("Python", f"{python}.restore(version={version})"),
            ],
        ),
        Snippets(
            "Tag",
            [
                ("SQL", f"CALL lake.system.create_tag({text}, 'name', version => {version})"),
                ("Python", f"{python}.tag('name', version={version})"),
                ("Command", f"laketx tag create {word} name --version {version}"),
            ],
        ),
        Snippets(
            "Clone",
            [
                ("SQL", f"CREATE TABLE lake.{quoted_clone} CLONE lake.{quoted} VERSION AS OF {version}"),
                ("Python", f"{python}.clone({clone!r}, version={version})"),
                ("Command", f"laketx table clone {word} {shell_word(clone)} --version {version}"),
            ],
        ),
    ]


def sql_name(part: str) -> str:
    return part if PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`"


def sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def shell_word(text: str) -> str:
    return text if PLAIN_WORD.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"
