"""Pipelines of dlt into a lake and into DuckDB, whose own destination is the oracle of what a load does."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import dlt
import duckdb
import pytest

from laketx.dlt import laketx
from laketx.lake import Lake

Row = dict[str, Any]


@dataclass(frozen=True)
class Load:
    """What one run of a pipeline loads into the table `orders`."""

    rows: Sequence[Row]
    disposition: Any
    hints: Mapping[str, Any] = field(default_factory=dict)


def environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing of dlt is outside the folder, and nothing goes to its makers."""
    monkeypatch.setenv("DLT_DATA_DIR", str(folder / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "CRITICAL")


def pipeline(folder: Path, destination: Any, name: str, dataset: str = "shop") -> dlt.Pipeline:
    return dlt.pipeline(name, destination=destination, dataset_name=dataset, pipelines_dir=str(folder / name))


def resource(load: Load, name: str = "orders") -> Any:
    return dlt.resource(list(load.rows), name=name, write_disposition=load.disposition, **load.hints)


class Both:
    """The same loads into both."""

    def __init__(self, lake: Lake, dataset: str, folder: Path) -> None:
        self._lake, self._dataset = lake, dataset
        self._database = folder / "peer.duckdb"
        self._ours = pipeline(folder, laketx(lake.warehouse), "ours", dataset)
        self._peer = pipeline(folder, dlt.destinations.duckdb(str(self._database)), "peer")

    def run(self, load: Load) -> None:
        self._ours.run(resource(load))
        self._peer.run(resource(load))

    def rows_of_lake(self) -> dict[str, list[Row]]:
        names = ("orders", "orders__items")
        there = {name: f"{self._dataset}.{name}" for name in names}
        known = self._lake.tables(self._dataset)
        return {name: self._lake.table(path).to_arrow().to_pylist() for name, path in there.items() if path in known}

    def rows_of_peer(self) -> dict[str, list[Row]]:
        with duckdb.connect(str(self._database), read_only=True) as peer:
            there = {name for (name,) in peer.execute("SELECT table_name FROM information_schema.tables").fetchall()}
            names = [name for name in ("orders", "orders__items") if name in there]
            return {name: peer.sql(f"SELECT * FROM shop.{name}").to_arrow_table().to_pylist() for name in names}


def comparable(tables: Mapping[str, Iterable[Row]]) -> list[str]:
    """Each row with its nested rows. Ids that dlt draws are left out, instants are replaced by their order."""
    orders = list(tables.get("orders", ()))
    instants = sorted({value for row in orders for value in row.values() if isinstance(value, datetime)})
    nested: dict[str, list[str]] = {}
    for item in tables.get("orders__items", ()):
        nested.setdefault(item["_dlt_parent_id"], []).append(str(_visible(item, instants)))
    return sorted(str((_visible(row, instants), sorted(nested.get(row["_dlt_id"], [])))) for row in orders)


def orphans(tables: Mapping[str, Iterable[Row]]) -> list[Row]:
    """Nested rows whose row isn't there. DuckDB has some after an upsert over rows that were replaced."""
    known = {row["_dlt_id"] for row in tables.get("orders", ())}
    return [item for item in tables.get("orders__items", ()) if item["_dlt_parent_id"] not in known]


def _visible(row: Row, instants: Sequence[datetime]) -> list[tuple[str, Any]]:
    found = []
    for name, value in sorted(row.items()):
        if isinstance(value, datetime):
            found.append((name, instants.index(value)))
        elif value is not None and name not in ("_dlt_id", "_dlt_root_id", "_dlt_parent_id", "_dlt_load_id"):
            found.append((name, value))
    return found


def random_loads(seed: int, strategy: str, count: int) -> list[Load]:
    """Loads of one kind of merge, with replacements between."""
    rng = random.Random(seed)
    hints = _hints(rng, strategy)
    found = []
    for number in range(count):
        is_replaced = rng.random() < 0.15 and strategy != "scd2" and number > 0  # DuckDB adds no NOT NULL column later
        rows = _rows(rng, number, hints, strategy, is_replaced=is_replaced)
        if is_replaced:
            found.append(Load(rows, "replace", {"primary_key": hints["primary_key"]} if "primary_key" in hints else {}))
            continue
        disposition = "append" if strategy == "append" else {"disposition": "merge", "strategy": strategy}
        found.append(Load(rows, disposition, hints))
    return found


def _hints(rng: random.Random, strategy: str) -> dict[str, Any]:
    if strategy == "append":
        return {}
    if strategy == "scd2":
        return {"merge_key": "day"} if rng.random() < 0.5 else {}
    hints: dict[str, Any] = {"primary_key": rng.choice(["id", ["id", "day"]])}
    columns: dict[str, Any] = {}
    if rng.random() < 0.5:
        columns["gone"] = {"hard_delete": True, "data_type": "bool"}
    if rng.random() < 0.5 and strategy == "delete-insert":
        columns["rank"] = {"dedup_sort": rng.choice(["asc", "desc"]), "data_type": "bigint"}
    if rng.random() < 0.4 and strategy == "delete-insert":
        hints["merge_key"] = "day"
        if rng.random() < 0.5:
            del hints["primary_key"]
            columns.pop("rank", None)
    return {**hints, "columns": columns} if columns else hints


def _rows(rng: random.Random, number: int, hints: Mapping[str, Any], strategy: str, *, is_replaced: bool) -> list[Row]:
    columns = hints.get("columns", {})
    keys = hints.get("primary_key", [])
    rows: dict[Any, Row] = {}
    for place in range(rng.randint(1, 8)):
        row: Row = {
            "id": rng.randint(1, 9),
            "day": rng.choice(["mon", "tue", "wed"]),
            "a": rng.choice(["x", "y", None]),
        }
        if strategy == "scd2" or rng.random() < 0.7:
            row["items"] = [{"n": rng.randint(1, 5)} for _ in range(rng.randint(0, 3))]
        if number > 2 and strategy != "scd2":
            row["late"] = rng.choice([1.5, None])
        if "gone" in columns:
            row["gone"] = rng.choice([True, False, None]) if strategy == "delete-insert" else False
        if "rank" in columns:
            row["rank"] = place * 5 % 8
        key = tuple(row[one] for one in ([keys] if isinstance(keys, str) else keys))
        identity: Any = (
            place if not keys or ("rank" in columns and not is_replaced) else key
        )  # else DuckDB may keep any
        if strategy == "scd2":
            identity = row["id"]
        rows[identity] = row
    return list(rows.values())
