"""The REST catalog over a lake on S3: clients get keys for the files of one table, also of one that they will make."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

import laketx
from metaservice.client import Credentials
from tests.iceberg.engines.environment import ICEBERG_AWS_JAR, run_statements
from tests.iceberg.servers import Server, catalog_of, served
from tests.iceberg.writers import SCHEMA, attached, ids, numbers
from tests.integration.callers import Guarded, guarded
from tests.integration.storage_server import REGION, SECRET, USER, storage_server

WAREHOUSE = "s3://lake/files"
pytestmark = pytest.mark.long  # MinIO is built from its sources


HEADERS = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}


@contextmanager
def catalog_with_keys(folder: Path) -> Iterator[tuple[Guarded, Server]]:
    """A service with tokens that makes keys, and a catalog over it. This process has no keys then."""
    with storage_server(folder, "lake") as url, pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith("AWS_")]:
            patch.delenv(name)
        known = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        known |= {"AWS_ENDPOINT_URL": url}
        for name, text in known.items():
            patch.setenv(name, text)
        flags = ["--storage-role", "arn:aws:iam::123456789012:role/lake", "--storage-sts-endpoint", url]
        flags += ["--storage-endpoint", url, "--storage-region", REGION]
        with guarded(folder / "data", *flags) as company:
            company.owner.call("MaintenanceService/SetWarehouse", location=WAREHOUSE, marked=True)
            company.grant("user:bo", "admin")
            words = ["--server", company.service.address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
            words += ["--warehouse", WAREHOUSE, "--client-config", "s3.path-style-access=true"]
            with served(*words) as server:
                for name in known:
                    patch.delenv(name)
                patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
                yield company, server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Guarded, Server]]:
    with catalog_with_keys(tmp_path_factory.mktemp("keys")) as found:
        yield found


def storage_of(given: Mapping[str, str]) -> fs.S3FileSystem:
    """The bucket, as a client opens it that was given these keys."""
    return fs.S3FileSystem(
        access_key=given["s3.access-key-id"],
        secret_key=given["s3.secret-access-key"],
        session_token=given["s3.session-token"],
        endpoint_override=given["s3.endpoint"].removeprefix("http://"),
        scheme="http",
        region=REGION,
    )


def rows_of(company: Guarded, name: str) -> list[int]:
    """The ids of a table, which LakeTX reads with a key of its own."""
    where, token = f"laketx://{company.service.address}", Credentials(token=company.token("bo"))
    with laketx.connect(where, warehouse=WAREHOUSE, credentials=token, storage_keys=True) as lake:
        return ids(lake.table(name))


def test_tables_on_s3_are_read_with_the_keys_that_the_catalog_gives(place: tuple[Guarded, Server]) -> None:
    company, server = place
    where, token = f"laketx://{company.service.address}", Credentials(token=company.token("bo"))
    with laketx.connect(where, warehouse=WAREHOUSE, credentials=token, storage_keys=True) as lake:
        table = lake.create_table("visits", "id bigint, note string")
        table.append([{"id": number, "note": "x"} for number in range(10)])
        table.append(pa.table({"id": range(10, 5_000), "note": ["y"] * 4_990}))
        table.delete("id < 5")
    company.grant("user:ana", "reader", table_id=table.table_id)
    for form in (2, 3):
        shown = catalog_of(server, form, token=company.token("ana"), **HEADERS).load_table("default.visits")
        assert shown.io.properties["s3.session-token"]
        assert shown.scan().to_arrow().num_rows == 4_995
        with pytest.raises(Exception, match=r"ForbiddenException|ACCESS_DENIED|AccessDenied"):
            shown.append(numbers([1]))


def test_writers_get_keys_also_for_tables_that_they_stage(place: tuple[Guarded, Server]) -> None:
    company, server = place
    company.owner.call("CatalogService/CreateNamespace", name="shop", request_id=laketx.uuid7())
    company.grant("user:wanda", "writer", namespace="shop")
    catalog = catalog_of(server, 2, token=company.token("wanda"), **HEADERS)
    plain = catalog.create_table("shop.plain", SCHEMA)
    plain.append(numbers([1]))
    plain.append(numbers([2]))
    staged = catalog.create_table_transaction("shop.staged", SCHEMA)
    staged.append(numbers([1, 2, 3]))
    staged.commit_transaction()
    assert (rows_of(company, "shop.plain"), rows_of(company, "shop.staged")) == ([1, 2], [1, 2, 3])
    assert catalog.load_table("shop.staged").scan().to_arrow().num_rows == 3


def test_a_key_of_a_staged_table_opens_its_folder_and_nothing_else(place: tuple[Guarded, Server]) -> None:
    company, server = place
    company.owner.call("CatalogService/CreateNamespace", name="tight", request_id=laketx.uuid7())
    company.grant("user:will", "writer", namespace="tight")
    token, path = company.token("will"), "/v1/v3/namespaces/tight/tables"
    headers = {"X-Iceberg-Access-Delegation": "vended-credentials", "Authorization": f"Bearer {token}"}
    column = {"id": 1, "name": "id", "type": "long", "required": False}
    asked = {"name": "new", "stage-create": True, "schema": {"type": "struct", "fields": [column]}}
    answer = server.post(path, asked, headers=headers).json()
    table_id = answer["metadata"]["table-uuid"]
    key, same = answer["storage-credentials"]
    assert (key["prefix"], same["prefix"]) == (f"{WAREHOUSE}/{table_id}", f"{WAREHOUSE}/{table_id}/_iceberg/rest")
    assert same["config"] == key["config"]
    assert key["config"].items() <= answer["config"].items()
    files = storage_of(key["config"])
    folder = f"lake/files/{table_id}"
    for mine in (f"{folder}/{laketx.uuid7()}/0.parquet", f"{folder}/_iceberg/rest/metadata/m.avro"):
        files.open_output_stream(mine).close()
    for other in (
        f"lake/files/{laketx.uuid7()}/0.parquet",
        f"{folder}x/0.parquet",
        "lake/files/_laketx/warehouse.json",
        f"lake/files/_laketx/staged/{table_id}",
        "lake/0.parquet",
    ):
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            files.open_output_stream(other).close()
    for hidden in ("lake/files", "lake/files/_laketx"):
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            files.get_file_info(fs.FileSelector(hidden))
    assert "storage-credentials" not in server.post(path, asked, headers={"Authorization": f"Bearer {token}"}).json()
    reader = {**headers, "Authorization": f"Bearer {company.token('rita')}"}
    assert server.post(path, asked, headers=reader).status_code in (403, 404)


def test_duckdb_writes_with_the_keys_that_it_is_given(place: tuple[Guarded, Server]) -> None:
    company, server = place
    company.owner.call("CatalogService/CreateNamespace", name="duck", request_id=laketx.uuid7())
    company.grant("user:dana", "writer", namespace="duck")
    with attached(server, 3, options=f"TOKEN '{company.token('dana')}'") as connection:
        for statement in (
            "CREATE TABLE lake.duck.made AS SELECT 1::BIGINT AS id, 'a' AS note",
            "INSERT INTO lake.duck.made VALUES (2, 'b')",
            "ALTER TABLE lake.duck.made ADD COLUMN v DOUBLE",
            "INSERT INTO lake.duck.made VALUES (3, 'c', 0.5)",
        ):
            connection.execute(statement)
        assert connection.execute("SELECT id FROM lake.duck.made ORDER BY id").fetchall() == [(1,), (2,), (3,)]
    assert rows_of(company, "duck.made") == [1, 2, 3]


def test_spark_writes_with_the_keys_that_it_is_given(place: tuple[Guarded, Server], tmp_path: Path) -> None:
    company, server = place
    company.owner.call("CatalogService/CreateNamespace", name="spark", request_id=laketx.uuid7())
    company.grant("user:sue", "writer", namespace="spark")
    statements = [
        "CREATE TABLE lake.spark.a (id BIGINT, note STRING, day DATE) USING iceberg PARTITIONED BY (day)",
        "INSERT INTO lake.spark.a VALUES (1, 'x', DATE '2026-11-01'), (2, 'y', DATE '2026-11-02')",
        "CREATE TABLE lake.spark.b USING iceberg AS SELECT * FROM lake.spark.a",
        "ALTER TABLE lake.spark.a ADD COLUMN w DOUBLE",
        "INSERT INTO lake.spark.a VALUES (3, 'w', DATE '2026-11-04', 1.5)",
        "SELECT id FROM lake.spark.a ORDER BY id",
    ]
    settings = HEADERS | {"token": company.token("sue"), "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
    answers = run_statements(server.url, tmp_path, "v3", statements, ICEBERG_AWS_JAR, **settings)
    assert [one.get("error", "") for one in answers] == [""] * len(statements)
    assert [row[0] for row in answers[-1]["rows"]] == [1, 2, 3]
    assert (rows_of(company, "spark.a"), rows_of(company, "spark.b")) == ([1, 2, 3], [1, 2])


def test_a_key_of_a_branch_opens_the_folder_of_the_table_and_nothing_else(place: tuple[Guarded, Server]) -> None:
    company, server = place
    company.owner.call("CatalogService/CreateNamespace", name="keys", request_id=laketx.uuid7())
    company.grant("user:kim", "writer", namespace="keys")
    token = company.token("kim")
    table = catalog_of(server, 2, token=token, **HEADERS).create_table("keys.t", SCHEMA)
    other = catalog_of(server, 2, token=token, **HEADERS).create_table("keys.other", SCHEMA)
    table.append(numbers([1]))
    company.owner.call("CatalogService/CreateBranch", request_id=laketx.uuid7(), name="keyed")
    fork = catalog_of(server, 2, "keyed", token=token, **HEADERS).load_table("keys.t")
    fork.append(numbers([2]))
    with attached(server, 3, options=f"TOKEN '{token}'", branch="keyed") as duck:
        duck.execute("INSERT INTO lake.keys.t VALUES (3, 'd')")
        duck.execute("CREATE TABLE lake.keys.made AS SELECT 4::BIGINT AS id")
        assert duck.execute("SELECT id FROM lake.keys.t ORDER BY id").fetchall() == [(1,), (2,), (3,)]
    assert (rows_of(company, "keys.t"), rows_of(company, "keys.t@keyed")) == ([1], [1, 2, 3])
    headers = {"X-Iceberg-Access-Delegation": "vended-credentials", "Authorization": f"Bearer {token}"}
    answer = server.get("/v1/v3@keyed/namespaces/keys/tables/t", headers=headers).json()
    key, same = answer["storage-credentials"]
    root, fork_id = table.metadata.table_uuid, fork.metadata.table_uuid
    assert key["prefix"] == f"{WAREHOUSE}/{root}"
    assert same["prefix"] == f"{WAREHOUSE}/{root}/_iceberg/forks/{fork_id}/rest" == answer["metadata"]["location"]
    files = storage_of(key["config"])
    for mine in (f"lake/files/{root}/{laketx.uuid7()}/0.parquet", f"lake/files/{root}/_iceberg/forks/{fork_id}/m"):
        files.open_output_stream(mine).close()
    for strange in (f"lake/files/{other.metadata.table_uuid}/0.parquet", f"lake/files/{fork_id}/0.parquet"):
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            files.open_output_stream(strange).close()
    company.grant("user:rob", "reader", namespace="keys")
    reads = headers | {"Authorization": f"Bearer {company.token('rob')}"}
    given = server.get("/v1/v3@keyed/namespaces/keys/tables/t", headers=reads).json()["storage-credentials"][0]
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        storage_of(given["config"]).open_output_stream(f"lake/files/{root}/{laketx.uuid7()}/0.parquet").close()
    company.owner.call("CatalogService/DropBranch", name="keyed")
