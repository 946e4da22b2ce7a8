"""Appends of Iceberg's clients where the warehouse is on S3. The clients have keys of their own."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
import pytest

import laketx
from laketx import Lake
from metaservice.client import add_column
from tests.arrow.tables import texts
from tests.iceberg.servers import Server, catalog_of, served
from tests.iceberg.writers import NO_TOKEN, REBASED, SCHEMA, appended, attached, created, ids, numbers
from tests.integration.bucket import REGION, SECRET, USER, bucket
from tests.integration.service import TIMEOUT_S, service

pyiceberg_types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")
OWN_KEYS: Final = {"s3.access-key-id": USER, "s3.secret-access-key": SECRET}


@dataclass
class OnS3:
    """A lake in a bucket, and two catalogs of it."""

    lake: Lake
    servers: list[Server]
    variables: Mapping[str, str]

    @property
    def secret(self) -> str:
        """For DuckDB."""
        place = self.variables["AWS_ENDPOINT_URL"].removeprefix("http://")
        return (
            f"CREATE SECRET s (TYPE s3, KEY_ID '{USER}', SECRET '{SECRET}', REGION '{REGION}', ENDPOINT '{place}', "
            "USE_SSL false, URL_STYLE 'path')"
        )

    def duckdb(self) -> Any:
        return attached(self.servers[0], 3, self.secret, options=f"{NO_TOKEN}, ACCESS_DELEGATION_MODE 'none'")

    def pyiceberg(self, form: int = 2) -> Any:
        return catalog_of(self.servers[0], form, **OWN_KEYS)


@contextmanager
def on_s3(folder: Path, warehouse: str) -> Iterator[OnS3]:
    with ExitStack() as stack:
        variables = stack.enter_context(bucket(folder))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in [one for one in os.environ if one.startswith("AWS_")]:
            patch.delenv(name)
        for name, text in variables.items():
            patch.setenv(name, text)
        one, _ = stack.enter_context(service(folder / "db"))
        words = ["--server", one.address, "iceberg", "serve", "--listen", "127.0.0.1:0", "--warehouse", warehouse]
        settings = {"s3.endpoint": variables["AWS_ENDPOINT_URL"], "s3.region": REGION, "s3.path-style-access": "true"}
        words += [word for name, text in settings.items() for word in ("--client-config", f"{name}={text}")]
        servers = [stack.enter_context(served(*words)) for _ in range(2)]
        lake = stack.enter_context(laketx.connect(f"laketx://{one.address}", warehouse=warehouse))
        lake.client.create_namespace("shop")
        yield OnS3(lake, servers, variables)


@pytest.fixture(scope="module", params=["s3://lake/files", pytest.param("s3a://lake/files", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnS3]:
    """A bucket has one scheme, and programs of Hadoop another name for it."""
    with on_s3(tmp_path_factory.mktemp("s3"), request.param) as found:
        yield found


def same_everywhere(place: OnS3, name: str) -> list[str]:
    """The rows of a table of `shop`, which LakeTX, pyiceberg and DuckDB read alike."""
    rows = texts(place.lake.table(f"shop.{name}").to_arrow())
    for form in (2, 3):
        assert texts(place.pyiceberg(form).load_table(f"shop.{name}").scan().to_arrow()) == rows
    with place.duckdb() as connection:
        assert texts(connection.execute(f"SELECT * FROM lake.shop.{name}").to_arrow_table()) == rows
    return rows


def test_pyiceberg_writes(place: OnS3) -> None:
    catalog = place.pyiceberg()
    theirs = catalog.create_table("shop.plain", SCHEMA)
    for shown in (theirs.location(), theirs.metadata_location, theirs.properties["write.data.path"]):
        assert shown.startswith("s3://lake/files/")
    theirs.append(numbers([1, 2]))
    with theirs.update_schema() as update:
        update.add_column("v", pyiceberg_types.DoubleType())
    theirs.append(pa.table({"id": [3], "note": ["c"], "v": [0.5]}))
    place.lake.client.alter_columns(place.lake.table("shop.plain").table_id, add_column("w", "string"))
    theirs.refresh().append(pa.table({"id": [4], "note": ["d"], "v": [1.5]}))
    with catalog.create_table_transaction("shop.whole", SCHEMA) as transaction:
        transaction.append(numbers([1, 2]))
    assert len(same_everywhere(place, "plain")) == 4
    theirs.delete("id = 1")
    theirs.overwrite(pa.table({"id": [5, 6], "note": ["e", "f"], "v": [2.5, 3.5]}), overwrite_filter="id >= 3")
    assert ids(place.lake.table("shop.plain")) == [2, 5, 6]
    assert len(same_everywhere(place, "plain")) == 3
    assert len(same_everywhere(place, "whole")) == 2


def test_duckdb_writes(place: OnS3) -> None:
    with place.duckdb() as connection:
        for statement in (
            "CREATE TABLE lake.shop.duck AS SELECT 1::BIGINT AS id, 'a' AS note",
            "INSERT INTO lake.shop.duck VALUES (2, 'b')",
            "ALTER TABLE lake.shop.duck ADD COLUMN v DOUBLE",
            "INSERT INTO lake.shop.duck VALUES (3, 'c', 0.5)",
            "DELETE FROM lake.shop.duck WHERE id = 2",
            "UPDATE lake.shop.duck SET id = 4, note = 'd' WHERE id = 3",
        ):
            connection.execute(statement)
    assert ids(place.lake.table("shop.duck")) == [1, 4]
    assert len(same_everywhere(place, "duck")) == 2


def test_paths_of_hadoop_are_the_same_files(place: OnS3) -> None:
    """Some clients send back s3a:// where they were told s3://."""
    catalog = place.pyiceberg()
    theirs = catalog.create_table("shop.hadoop", SCHEMA)
    staged = catalog.create_table_transaction("shop.staged", SCHEMA)
    staged.append(numbers([7]))
    for request in (appended(theirs, numbers([1, 2])), created(staged, "shop.staged")):
        for update in request.body["updates"]:
            if "location" in update:
                update["location"] = update["location"].replace("s3://", "s3a://")
            if "snapshot" in update:
                there = update["snapshot"]["manifest-list"]
                update["snapshot"]["manifest-list"] = there.replace("s3://", "s3a://")
        assert [request.send(each).status_code for each in place.servers] == [200, 200]
    assert len(same_everywhere(place, "hadoop")) == 2
    assert len(same_everywhere(place, "staged")) == 1


def test_commits_that_share_a_folder_get_copies(place: OnS3) -> None:
    theirs = place.pyiceberg().create_table("shop.shared", SCHEMA, properties=REBASED)
    requests = [appended(theirs, numbers([number])) for number in range(3)]
    for request in [*requests, *requests]:
        assert request.send(place.servers[0]).status_code == 200
    assert len(same_everywhere(place, "shared")) == 3


@pytest.mark.long
def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with on_s3(tmp_path, "s3://lake/files") as place:
        first, doomed = place.servers
        place.pyiceberg().create_table("shop.killed", SCHEMA, properties=REBASED)
        written: Counter[int] = Counter()
        half = threading.Barrier(5)

        def write(number: int) -> None:
            order = [doomed, first] if number % 2 else [first, doomed]
            for at in range(4):
                if at == 2:
                    half.wait(TIMEOUT_S)
                rows = [100 * number + at, 100 * number + at + 50]
                request = appended(place.pyiceberg().load_table("shop.killed"), numbers(rows))
                while not any(acknowledged(request, each) for each in order):
                    pass
                written.update(rows)

        def acknowledged(request: Any, server: Server) -> bool:
            try:
                answer = request.send(server)
            except httpx.HTTPError:
                return False
            assert answer.status_code == 200, answer.text
            return True

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write, number) for number in range(4)]
            half.wait(TIMEOUT_S)
            doomed.kill()
            for one in writers:
                one.result()
        assert ids(place.lake.table("shop.killed")) == sorted(written.elements())
        assert len(same_everywhere(place, "killed")) == 32
