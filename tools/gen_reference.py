"""Generates docs/settings.md, docs/metrics.md and docs/rights.md from the code. `--check` compares instead."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from metaservice.metrics import METRICS
from metaservice.rpc.auth.rights import RIGHTS
from metaservice.server.settings import build_parser
from metaservice.shared.log import EVENTS
from tools.wire import ROOT

SETTINGS_INTRO = """\
# Settings

Generated from the code by `make docs`. `laketx serve` reads its settings once, at the start: an option of the command
line wins over its environment variable.

| option | environment | default | what it sets |
| --- | --- | --- | --- |
"""
METRICS_INTRO = """\
# Metrics and events

Generated from the code by `make docs`. [Operations](operations.md) lists what to watch and how to react.

## Metrics

With `--metrics-listen HOST:PORT` the service answers `GET /metrics` there in Prometheus's text format.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
"""
EVENTS_INTRO = """
## Events

The service writes each event as a line on stderr: time, level, and a JSON object whose `event` is one of these words.

| event | meaning |
| --- | --- |
"""


RIGHTS_INTRO = """\
# Rights

Generated from the code by `make docs`. The role that each call needs if the service authenticates its callers. A role
includes the roles before it: reader, writer, maintainer, admin. [Security](security.md#rights) explains how to grant
them.

| call | needs |
| --- | --- |
"""


def settings_document() -> str:
    rows = []
    for action in build_parser({})._actions:
        if action.dest != "help":
            said, _, rest = (action.help or "").rpartition(" (")
            variable = rest.partition(";")[0]
            default = f"`{action.default}`" if str(action.default) else "none"
            rows.append(f"| `{action.option_strings[0]}` | `{variable}` | {default} | {_sentence(said)} |\n")
    return SETTINGS_INTRO + "".join(rows)


def rights_document() -> str:
    named = {name.rpartition(".")[2]: one.says for name, one in RIGHTS.items() if name.startswith("/laketx.")}
    rows = [f"| `{name.replace('/', '.')}` | {says} |\n" for name, says in sorted(named.items())]
    return RIGHTS_INTRO + "".join(rows)


def metrics_document() -> str:
    metrics = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.says} |\n"
        for one in METRICS
    ]
    events = [f"| `{name}` | {says} |\n" for name, says in EVENTS.items()]
    return METRICS_INTRO + "".join(metrics) + EVENTS_INTRO + "".join(events)


DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "docs/settings.md": settings_document,
    "docs/metrics.md": metrics_document,
    "docs/rights.md": rights_document,
}


def list_stale(root: Path) -> list[str]:
    return [name for name, make in DOCUMENTS.items() if _read(root / name) != make()]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a document is not fresh")
    if parser.parse_args(arguments).check:
        for name in (stale := list_stale(root)):
            print(f"{name} is not what the code says: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for name, make in DOCUMENTS.items():
        (root / name).write_text(make(), encoding="utf-8")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


if __name__ == "__main__":
    sys.exit(main())
