"""Every engine reads every table at every moment, in both formats: what it read is right, or why it isn't."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa

from tests.arrow.tables import open_lake, texts
from tests.iceberg.engines.environment import SPARK_SETTINGS, ensure_others, ensure_spark, spark_catalog
from tests.iceberg.matrix.results import Failure, Tried
from tests.iceberg.matrix.tables import MOMENTS, TAG, Case, cases
from tests.iceberg.readers import duckdb_of_iceberg
from tests.iceberg.servers import DEFAULT, Server, catalog_of, served_folder, warehouse_of
from worker.iceberg.export import export

FORMS: Final = (3, 2)
NEAR: Final = ("pyiceberg", "polars", "duckdb")  # run in this process
FAR: Final = ("spark", "daft", "chdb")  # have environments of their own
REASON_MAX: Final = 200
FAR_S: Final = 1_800
SCRIPT: Final = Path(__file__).resolve().parent.parent / "engines" / "reads.py"


@dataclass(frozen=True, slots=True)
class Asked:
    """A read that is asked for."""

    case: Case
    form: int
    moment: str

    @property
    def at(self) -> int | str | None:
        """A snapshot by its number, a tag by its name; none: the newest."""
        if self.moment == "head":
            return None
        return TAG if self.moment == "tag" else self.case.version(self.moment) + 1

    @property
    def number(self) -> int | None:
        return None if self.moment == "head" else self.case.version(self.moment) + 1


def run(folder: Path, engines: Sequence[str], forms: Sequence[int] = FORMS, branch: str = "") -> list[Tried]:
    """Makes the tables in the folder, and lets the engines read them, or what a branch has of them."""
    with open_lake(folder / "lake") as lake, served_folder(folder / "lake", "--snapshots", "30") as server:
        made = cases(lake, folder, branch)
        asked = [Asked(case, form, moment) for case in made for form in forms for moment in MOMENTS]
        return [tried for engine in engines for tried in tried_by(engine, server, asked, folder, branch)]


def tried_by(engine: str, server: Server, asked: Sequence[Asked], folder: Path, branch: str) -> list[Tried]:
    """What an engine read, by format."""
    is_near = engine in NEAR
    said, failed = near(engine, server, asked, branch) if is_near else far(engine, server, asked, folder, branch)
    found = []
    for form in dict.fromkeys(one.form for one in asked):
        wrongs = [(one, wrong) for one, wrong in zip(asked, failed, strict=True) if one.form == form]
        failures = [Failure(one.case.kind, one.case.state, one.moment, wrong) for one, wrong in wrongs if wrong]
        found.append(Tried(engine, said, form, len(wrongs), failures))
    return found


# -- engines of this process


def near(engine: str, server: Server, asked: Iterable[Asked], branch: str) -> tuple[str, list[str]]:
    """Its version, and what is wrong with each read."""
    with near_reader(engine, server, branch) as read:
        return version(engine), [wrong_of(one, partial(read, one)) for one in asked]


@contextmanager
def near_reader(engine: str, server: Server, branch: str) -> Iterator[Callable[[Asked], pa.Table]]:
    if engine == "duckdb":
        with duckdb_of_iceberg() as connection:
            for form in FORMS:
                connection.execute(
                    f"ATTACH '{warehouse_of(form, branch)}' AS lake{form} "
                    f"(TYPE iceberg, ENDPOINT '{server.url}', AUTHORIZATION_TYPE 'none')"
                )
            yield lambda one: by_duckdb(connection, one)
    else:
        catalogs = {form: catalog_of(server, form, branch) for form in FORMS}
        by = by_pyiceberg if engine == "pyiceberg" else by_polars
        yield lambda one: by(catalogs[one.form].load_table((DEFAULT, one.case.name)), one)


def by_duckdb(connection: duckdb.DuckDBPyConnection, one: Asked) -> pa.Table:
    at = "" if one.number is None else f" AT (VERSION => {one.number})"
    return connection.execute(f'SELECT * FROM lake{one.form}.{DEFAULT}."{one.case.name}"{at}').to_arrow_table()


def by_pyiceberg(table: Any, one: Asked) -> pa.Table:
    scan = table.scan() if one.at is None else table.scan(snapshot_id=one.number)
    return (table.scan().use_ref(TAG) if one.at == TAG else scan).to_arrow()


def by_polars(table: Any, one: Asked) -> pa.Table:
    return pl.scan_iceberg(table, snapshot_id=one.number).collect().to_arrow()


# -- engines of other environments


def far(engine: str, server: Server, asked: Sequence[Asked], folder: Path, branch: str) -> tuple[str, list[str]]:
    """Its version, and what is wrong with each read."""
    python = ensure_spark() if engine == "spark" else ensure_others()
    settings = dict(SPARK_SETTINGS)
    for form in FORMS:
        settings |= spark_catalog(f"lake{form}", server.url, warehouse_of(form, branch))
    reads = [read_of(engine, one, server, folder, branch) for one in asked]
    path = folder / f"{engine}.json"
    path.write_text(json.dumps({"settings": settings, "reads": reads}), encoding="utf-8")
    command = [str(python), str(SCRIPT), engine, str(path)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=FAR_S, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('"')]
    assert len(said) == len(asked) + 1, f"{engine} stopped after {len(said)} answers: {done.stdout[-2_000:]}"
    wrongs = [
        wrong_of(one, partial(rows_of, why, read["to"])) for one, read, why in zip(asked, reads, said[1:], strict=True)
    ]
    return said[0], wrongs


def read_of(engine: str, one: Asked, server: Server, folder: Path, branch: str) -> dict[str, Any]:
    """A read as `reads.py` takes it."""
    name = f"{engine}-{one.case.name}-{one.form}-{one.moment}".replace(" ", "-")
    return {
        "catalog": f"lake{one.form}",
        "warehouse": warehouse_of(one.form, branch),
        "url": server.url,
        "namespace": DEFAULT,
        "table": one.case.name,
        "at": one.at,
        "export": exported(one, folder / name) if engine == "chdb" else "",
        "to": str(folder / f"{name}.arrow"),
    }


def exported(one: Asked, folder: Path) -> str:
    """The metadata of that version, for a reader without a catalog."""
    return export(one.case.table.view, one.case.version(one.moment), form=one.form, folder=str(folder)).metadata


def rows_of(failed: str, path: str) -> pa.Table:
    if failed:
        raise EngineError(failed)
    with pa.OSFile(path) as source:
        return pa.ipc.open_file(source).read_all()


class EngineError(Exception):
    """What an engine of another environment said."""


# -- beside the oracle


def wrong_of(one: Asked, read: Callable[[], pa.Table]) -> str:
    """Empty where the rows are those of the table."""
    try:
        return difference(read(), one.case.rows(one.moment))
    except Exception as error:  # noqa: BLE001 - what an engine can't is what is asked
        return reason_of(error)


def difference(found: pa.Table, wanted: pa.Table) -> str:
    if set(found.schema.names) != set(wanted.schema.names):
        return f"columns {sorted(set(found.schema.names) ^ set(wanted.schema.names))} differ"
    rows = texts(found.select(wanted.schema.names).cast(wanted.schema))
    if rows == texts(wanted):
        return ""
    return f"{len(rows)} rows instead of {len(wanted)}" if len(rows) != len(wanted) else "other values"


def reason_of(error: Exception) -> str:
    """The first line of what an engine says, without what differs from run to run."""
    text = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
    line = next((one for one in text.splitlines() if one.strip()), "")
    line = re.sub(r"(file:)?/[^\s'\",;)]*/[^\s'\",;)]*", "…", line)
    return textwrap.shorten(line, REASON_MAX, placeholder=" …")
