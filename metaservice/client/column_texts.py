"""Names of columns as people write them, and lists with brackets and quotes."""

from __future__ import annotations

from typing import Final

NAME: Final = r"(?:`(?:[^`]|``)+`|\w+)"


def unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def split_outside_brackets(text: str) -> list[str]:
    """At commas, those inside of decimal(10,2), struct<a: int, b: int>, quotes or backticks apart."""
    parts, depth, quoted = [""], 0, ""
    for each in text:
        if each in "'`" and quoted in ("", each):
            quoted = "" if quoted else each
        if not quoted:
            depth += (each in "(<") - (each in ")>")
        if each == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += each
    return parts
