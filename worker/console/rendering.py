"""Pages as HTML: every value is text, whatever it contains."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from metaservice.cli.values import duration_text, size_text, to_second, when, word
from metaservice.shared.terminal import printable_lines
from protos.laketx.v1 import common_pb2, maintenance_pb2, transaction_pb2

NONE: Final = "\N{EN DASH}"  # for a value that there is none of
PACKAGE: Final = "worker.console"
STATIC: Final = Path(str(resources.files(PACKAGE).joinpath("static")))


def shown(value: object) -> object:
    """A value as a template writes it: without characters that turn the direction of text or can't be seen.

    Jinja escapes it afterwards.
    """
    return printable_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def count_text(number: float) -> str:
    """A number with commas between thousands."""
    return f"{number:,.0f}"


def noun_text(number: int, singular: str, plural: str = "") -> str:
    """The noun that fits a number."""
    return singular if number == 1 else plural or f"{singular}s"


def share_text(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else NONE


def path_text(path: str, **query: object) -> str:
    """A path of this server with the parts of its query that are not empty."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return quote(path) + (f"?{urlencode(given)}" if given else "")


@cache
def asset(name: str) -> str:
    """The address of a static file, which changes with its content."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def build_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count_text,
        "noun": noun_text,
        "size": size_text,
        "when": to_second,
        "instant": when,
        "duration": duration_text,
        "operation": lambda value: word(common_pb2.Operation.Name, value),
        "rule": lambda value: word(common_pb2.ConflictRule.Name, value),
        "txn_state": lambda value: word(transaction_pb2.TransactionState.Name, value),
        "task_state": lambda value: word(maintenance_pb2.TaskState.Name, value),
    }
    environment.globals |= {"asset": asset, "path": path_text, "share": share_text}
    return environment


class Pages:
    """The templates."""

    def __init__(self) -> None:
        self._environment = build_environment()

    def render(self, template: str, facts: Mapping[str, Any]) -> str:
        return self._environment.get_template(template).render(facts)
