"""How the tours speak: chapters, paragraphs, tables."""

from __future__ import annotations

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

console = Console(width=110)


def title(text: str) -> None:
    console.print(Rule(f"[bold]{text}"))


def chapter(text: str) -> None:
    console.print()
    console.print(Rule(f"[bold]{text}", align="left"))


def say(text: str) -> None:
    console.print(text, highlight=False)


def good(text: str) -> Text:
    return Text(text, style="green")


def bad(text: str) -> Text:
    return Text(text, style="red")
