"""What Java and Python both go by stands once, in the protos."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from metaservice.core import limits
from metaservice.shared.error_kinds import ErrorKind
from protos.laketx.v1 import common_pb2
from tests.house.tree import ROOT

JAVA = ROOT / "worker" / "spark_catalog" / "src"
PYTHON = ("worker", "laketx", "iceberg", "imports", "metaservice/client")
CONSTANT = re.compile(r"static final (?:int|long|byte|String) ([A-Z_]+) = ([^;]+);")
NUMBER = re.compile(r"(\d[\d_]*)(?: (<<|\*) (\d[\d_]*))?L?$")
PROFILE = r"[\"'](?:maxcompute|row_level|delta_\w*)[\"']"
COMPARED = re.compile(rf"(?:[!=]=|\bin|equals\(|startsWith\(|startswith\() *\(?{PROFILE}|{PROFILE} *(?:[!=]=|\.equals)")
ALONE = {
    "BLOCK_IMAGES",  # of a key index's layers: what Python wrote Java reads in tests/spark/test_key_index.py
    "FILE_BYTES",  # of memory, about: what each holds of such a layer
    "GAP_BLOCKS",  # how much of such a layer is read at once: each as it likes
    "PAGE",  # how much of a list to ask for: each asks as it likes
    "RENEWALS_PER_LEASE",  # likewise
    "RUN_BLOCKS",  # as GAP_BLOCKS
    "SHORT_FILES",  # as BLOCK_IMAGES
    "SPARK_SEED",  # Spark's
    "WIRE",  # of a folder's service, in the file beside it, before anybody is connected
}


def number(text: str) -> int | None:
    found = NUMBER.match(text.strip())
    if found is None:
        return None
    first, sign, second = found.groups()
    value, other = int(first), int(second or 0)
    return value << other if sign == "<<" else value * other if sign == "*" else value


def java() -> Iterator[Path]:
    return JAVA.rglob("*.java")


def python() -> Iterator[Path]:
    for folder in PYTHON:
        yield from (one for one in (ROOT / folder).rglob("*.py") if "spark_catalog" not in one.parts)


def java_numbers() -> set[tuple[str, int]]:
    found = {(name, number(text)) for one in java() for name, text in CONSTANT.findall(one.read_text(encoding="utf-8"))}
    return {(name, value) for name, value in found if value is not None}


def python_numbers() -> Iterator[tuple[str, int]]:
    for one in python():
        for node in ast.parse(one.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                value = number(ast.unparse(node.value))
                if value is not None:
                    yield node.target.id, value


def test_no_number_of_a_name_stands_in_java_and_in_python() -> None:
    """Such a one is a limit that both keep: a value of `Limit` in common.proto."""
    assert {one for one in set(python_numbers()) & java_numbers() if one[0] not in ALONE} == set()


def test_the_numbers_of_the_wire_are_those_of_the_service() -> None:
    assert limits.KEYS_EXACT_MAX == common_pb2.LIMIT_KEYS_NAMED
    assert limits.ROW_RANGES_MAX == common_pb2.LIMIT_ROW_RANGES
    assert limits.INLINED_FILE_BYTES_MAX >= common_pb2.LIMIT_INLINE_FILE_BYTES
    assert limits.PREDICATE_NODES_MAX >= common_pb2.LIMIT_CONDITION_NODES
    assert limits.PREDICATE_DEPTH_MAX >= common_pb2.LIMIT_CONDITION_DEPTH
    assert limits.PLAN_PARTITIONS_MAX >= common_pb2.LIMIT_PARTITIONS_NAMED


def test_the_kinds_of_refusals_are_those_of_the_wire() -> None:
    kinds = [one.name.removeprefix("ERROR_KIND_") for one in common_pb2.ErrorKind.DESCRIPTOR.values]
    assert kinds == ["UNSPECIFIED", *ErrorKind.__members__]


def test_no_client_compares_the_name_of_a_profile() -> None:
    """The table's message says what its profile asks of writers."""
    found = [one.name for one in [*java(), *python()] if COMPARED.search(one.read_text(encoding="utf-8"))]
    assert found == []
