"""The results of the last whole run, in a file from which the documents' table is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).resolve().parent / "results.json"


@dataclass(frozen=True, slots=True)
class Failure:
    """A read that went wrong."""

    kind: str
    state: str
    moment: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Tried:
    """What one engine read in one format."""

    engine: str
    version: str
    form: int
    reads: int
    failures: Sequence[Failure]


def save(found: Sequence[Tried], path: Path = RESULTS) -> None:
    listed = [
        {
            "engine": one.engine,
            "version": one.version,
            "format": one.form,
            "reads": one.reads,
            "failures": [[each.kind, each.state, each.moment, each.wrong] for each in one.failures],
        }
        for one in found
    ]
    path.write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def saved(path: Path = RESULTS) -> list[Tried]:
    listed = json.loads(path.read_text(encoding="utf-8"))
    return [tried(one) for one in listed]


def tried(one: Mapping[str, object]) -> Tried:
    failures = one["failures"]
    assert isinstance(failures, list)
    found = [Failure(*each) for each in failures]
    return Tried(str(one["engine"]), str(one["version"]), int(str(one["format"])), int(str(one["reads"])), found)
