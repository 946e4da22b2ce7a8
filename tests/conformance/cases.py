"""Case files and what they say: the outcome table (CSV), pairs of operations, actions under a profile."""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMITTED = "committed"
CONFLICT = "conflict"
ROW_LEVEL = "row_level"  # takes either form
OPERATIONS = ("INSERT_OVERWRITE", "INSERT_INTO", "UPDATE_DELETE", "MINOR_COMPACT", "MAJOR_COMPACT")
KINDS = ("base", "delta")
OUTCOMES = frozenset(
    {
        COMMITTED,
        "ProtocolChanged",
        "MetadataChanged",
        "ConcurrentTransaction",
        "ConcurrentAppend",
        "ConcurrentDeleteRead",
        "ConcurrentDeleteDelete",
        "ConcurrentRowChange",
        "Lineage",
    }
)


class BadCaseError(Exception):
    """A case that can't be understood."""


@dataclass(frozen=True)
class PairFile:
    partition: str
    file: str
    kind: str


@dataclass(frozen=True)
class PairJob:
    """One transaction of a pair: a class of the table, with what it adds and replaces."""

    op: str
    partitions: tuple[str, ...]
    adds: tuple[PairFile, ...]
    replaces: tuple[tuple[str, str], ...]  # (partition, file)


@dataclass(frozen=True)
class PairCase:
    case_id: str
    profile: str
    partition_by: tuple[str, ...]
    files: tuple[PairFile, ...]
    winners: tuple[PairJob, ...]
    own: PairJob
    expect: str
    expect_live: Mapping[str, tuple[str, ...]] | None  # None: not said


PartitionText = Mapping[str, str | None]  # column -> value; None: NULL


@dataclass(frozen=True)
class Add:
    file: str
    partition: PartitionText
    data_change: bool


@dataclass(frozen=True)
class Remove:
    file: str
    data_change: bool


@dataclass(frozen=True)
class WriteAppVersion:
    app_id: str
    version: int


@dataclass(frozen=True)
class ChangeMetadata:
    pass


@dataclass(frozen=True)
class ChangeProtocol:
    pass


Action = Add | Remove | WriteAppVersion | ChangeMetadata | ChangeProtocol


@dataclass(frozen=True)
class ReadWhere:
    where: str
    reads_files: bool


@dataclass(frozen=True)
class ReadPartitions:
    partitions: tuple[PartitionText, ...]
    reads_files: bool


@dataclass(frozen=True)
class ReadAppId:
    app_id: str


CaseRead = ReadWhere | ReadPartitions | ReadAppId


@dataclass(frozen=True)
class Winner:
    blind: bool
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class ActionCase:
    case_id: str
    profile: str
    partition_by: tuple[str, ...]
    files: tuple[Add, ...]
    reads: tuple[CaseRead, ...]
    winners: tuple[Winner, ...]
    changes_data: bool
    actions: tuple[Action, ...]
    expect: str


Case = PairCase | ActionCase


@dataclass(frozen=True)
class BadCase:
    """A line that is no case; it counts as a failure."""

    case_id: str
    why: str


def read_cases(path: Path) -> list[Case | BadCase]:
    return list(read_outcome_table(path) if path.suffix == ".csv" else read_json_lines(path))


def read_json_lines(path: Path) -> Iterator[Case | BadCase]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            try:
                yield decode_case(json.loads(line))
            except (AttributeError, BadCaseError, KeyError, TypeError, ValueError) as error:
                yield BadCase(f"{path.name}:{number}", f"not a case: {type(error).__name__}: {error}")


def read_outcome_table(path: Path) -> Iterator[Case | BadCase]:
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), start=2):
            try:
                yield case_of_row(row["earlier"].strip(), row["later"].strip(), row["later_stands"].strip())
            except (AttributeError, BadCaseError, KeyError) as error:
                yield BadCase(f"{path.name}:{number}", f"not a row: {type(error).__name__}: {error}")


def case_of_row(earlier: str, later: str, stands: str) -> PairCase:
    if stands not in {"yes", "no"}:
        raise BadCaseError(f"later_stands is {stands!r}")
    return PairCase(
        case_id=f"TABLE-{earlier}-{later}",
        profile="maxcompute",
        partition_by=(),
        files=(PairFile("", "f1", "base"), PairFile("", "f2", "delta"), PairFile("", "f3", "delta")),
        winners=(job_of_class(earlier, "w"),),
        own=job_of_class(later, "o"),
        expect=COMMITTED if stands == "yes" else CONFLICT,
        expect_live=None,
    )


def job_of_class(op: str, name: str) -> PairJob:
    replaces: Mapping[str, tuple[str, ...]] = {"MINOR_COMPACT": ("f2", "f3"), "MAJOR_COMPACT": ("f1", "f2", "f3")}
    kind = "base" if op == "MAJOR_COMPACT" else "delta"
    inputs = tuple(("", file) for file in replaces.get(op, ()))
    return PairJob(one_of(op, OPERATIONS), ("",), (PairFile("", name, kind),), inputs)


def decode_case(said: Mapping[str, Any]) -> Case:
    profile = said["profile"]
    if profile == "maxcompute":
        return decode_pair(said)
    if profile == ROW_LEVEL and "op" in said["own"]:
        return decode_pair(said)
    if profile.startswith("delta_") or profile == ROW_LEVEL:
        return decode_actions_case(said)
    raise BadCaseError(f"no form for the profile {profile!r}")


def decode_pair(said: Mapping[str, Any]) -> PairCase:
    live = said.get("expect_live")
    return PairCase(
        case_id=said["id"],
        profile=said["profile"],
        partition_by=tuple(said["partition_by"]),
        files=tuple(PairFile(each["partition"], each["file"], one_of(each["kind"], KINDS)) for each in said["files"]),
        winners=tuple(decode_job(each) for each in said["winners"]),
        own=decode_job(said["own"]),
        expect=one_of(said["expect"], OUTCOMES | {CONFLICT} if said["profile"] == ROW_LEVEL else (COMMITTED, CONFLICT)),
        expect_live=None if live is None else {partition: tuple(files) for partition, files in live.items()},
    )


def decode_job(said: Mapping[str, Any]) -> PairJob:
    return PairJob(
        op=one_of(said["op"], OPERATIONS),
        partitions=tuple(said["partitions"]),
        adds=tuple(PairFile(partition, file, one_of(kind, KINDS)) for partition, file, kind in said["adds"]),
        replaces=tuple((partition, file) for partition, file in said["replaces"]),
    )


def decode_actions_case(said: Mapping[str, Any]) -> ActionCase:
    own = said["own"]
    return ActionCase(
        case_id=said["id"],
        profile=said["profile"],
        partition_by=tuple(said["partition_by"]),
        files=tuple(Add(each["file"], decode_partition(each["partition"]), True) for each in said["files"]),
        reads=tuple(decode_read(each) for each in said["reads"]),
        winners=tuple(
            Winner(each["blind"], tuple(decode_action(action) for action in each["actions"]))
            for each in said["winners"]
        ),
        changes_data=own["changes_data"],
        actions=tuple(decode_action(each) for each in own["actions"]),
        expect=one_of(said["expect"], OUTCOMES),
    )


def decode_action(said: Mapping[str, Any]) -> Action:
    match said:
        case {"add": str(file), "partition": partition, "data_change": bool(data_change)}:
            return Add(file, decode_partition(partition), data_change)
        case {"remove": str(file), "data_change": bool(data_change)}:
            return Remove(file, data_change)
        case {"app_id": str(app_id), "app_version": int(version)}:
            return WriteAppVersion(app_id, version)
        case {"metadata": "changed"}:
            return ChangeMetadata()
        case {"protocol": "changed"}:
            return ChangeProtocol()
        case _:
            raise BadCaseError(f"no action: {json.dumps(said)}")


def decode_read(said: Mapping[str, Any]) -> CaseRead:
    reads_files = bool(said.get("reads_files", True))
    match said:
        case {"where": str(where)}:
            return ReadWhere(where, reads_files)
        case {"partitions": list(partitions)}:
            return ReadPartitions(tuple(decode_partition(each) for each in partitions), reads_files)
        case {"app_id": str(app_id)}:
            return ReadAppId(app_id)
        case _:
            raise BadCaseError(f"no read: {json.dumps(said)}")


def decode_partition(said: Mapping[str, Any]) -> PartitionText:
    return {column: None if value is None else str(value) for column, value in said.items()}


def one_of(word: str, words: tuple[str, ...] | frozenset[str]) -> str:
    if word not in words:
        raise BadCaseError(f"{word!r} is none of {', '.join(sorted(words))}")
    return word
