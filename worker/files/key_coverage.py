"""The coverage of a key index: all files of a version, except those that it lists.

A key look-up then needs no list of the table's files: layers name files with an image of a key, a coverage lists the
files that no layer covers, and the service lists the files that were added after its version. A coverage is valid as
long as all of its layers can be read. It contains the history of its version: a service that was restored from a backup
gives the same numbers to other versions.

    <table>/_keys/<facts>/<version>-<name>.coverage
    SHA-256 of the rest, 32 bytes | JSON: facts, history, version, layers, partitions (each once), others

An other is the bucket, path and place of the partition of a file that no layer covers. The name is that of the layers.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SUFFIX: Final = ".coverage"
OTHERS_MAX: Final = 10_000  # of more files that no layer covers there is no coverage
VERSION_DIGITS: Final = 20
_DIGEST_BYTES: Final = 32

File = tuple[str, bytes]  # its path, its partition as a message


@dataclass(frozen=True, slots=True)
class Coverage:
    """The layers that cover the files of a version, and the files that no layer covers, by bucket number."""

    history: str  # of the service, that the version is of
    version: int
    layers: Mapping[int, Sequence[str]]  # paths below the table's folder
    others: Mapping[int, Sequence[File]]


def encode(facts: str, coverage: Coverage) -> bytes:
    """Return the content of a coverage."""
    files = [(bucket, *file) for bucket, others in coverage.others.items() for file in others]
    partitions = {partition: at for at, partition in enumerate(dict.fromkeys(partition for _, _, partition in files))}
    content = {
        "facts": facts,
        "history": coverage.history,
        "version": coverage.version,
        "layers": [[bucket, *paths] for bucket, paths in coverage.layers.items()],
        "partitions": [b64encode(partition).decode() for partition in partitions],
        "others": [[bucket, path, partitions[partition]] for bucket, path, partition in files],
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    return hashlib.sha256(text).digest() + text


def decode(facts: str, content: bytes) -> Coverage | None:
    """Return a coverage; None if it is damaged, or another table's."""
    digest, text = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(text).digest() != digest:
        return None
    fields = json.loads(text)
    if fields["facts"] != facts:
        return None
    partitions = [b64decode(partition) for partition in fields["partitions"]]
    others: dict[int, list[File]] = defaultdict(list)
    for bucket, path, at in fields["others"]:
        others[bucket].append((path, partitions[at]))
    return Coverage(
        fields["history"], fields["version"], {bucket: paths for bucket, *paths in fields["layers"]}, others
    )


def name_of(coverage: Coverage, content: bytes) -> str:
    """Return the name of a coverage's file. Later versions have later names."""
    return f"{coverage.version:0{VERSION_DIGITS}d}-{hashlib.sha256(content).hexdigest()[:32]}{SUFFIX}"


def newest(paths: Iterable[str]) -> str | None:
    """Return the path of the coverage of the newest version, among paths of coverages."""
    return max(paths, default=None)
