"""Tables of other formats on S3, taken in where they lie."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from laketx import connect
from tests.integration.storage_server import REGION, SECRET, USER, storage_server
from worker.imports.delta_table import read_delta
from worker.imports.iceberg_table import open_table, read_iceberg
from worker.imports.planning import Meter
from worker.imports.table_import import import_table

ROWS = pa.table({"id": pa.array(range(6), pa.int64()), "name": ["a b", "c%2F", None] * 2})


@pytest.mark.long
def test_tables_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with storage_server(tmp_path, "bucket") as url, connect(tmp_path / "lake") as lake:
        for name in [one for one in os.environ if one.startswith("AWS_")]:
            monkeypatch.delenv(name)
        known = {"AWS_ENDPOINT_URL": url, "AWS_REGION": REGION}
        known |= {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ALLOW_HTTP": "true"}
        for name, value in known.items():
            monkeypatch.setenv(name, value)
        wanted = sorted(ROWS.to_pylist(), key=repr)

        write_deltalake("s3://bucket/delta/orders", ROWS, partition_by=["name"])
        import_table(lake, read_delta("s3://bucket/delta/orders", Meter()), "shop.delta")
        assert sorted(lake.table("shop.delta").to_arrow().to_pylist(), key=repr) == wanted

        options = {"s3.endpoint": url, "s3.region": REGION}
        options |= {"s3.access-key-id": USER, "s3.secret-access-key": SECRET}
        uri = f"sqlite:///{tmp_path}/catalog.db"
        catalog = SqlCatalog("laketx", uri=uri, warehouse="s3://bucket/iceberg", **options)
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.orders", ROWS.schema)
        table.append(ROWS)
        for rows in (wanted, [one for one in wanted if one["id"] != 2]):
            import_table(lake, read_iceberg(open_table(uri, "shop.orders", options), Meter()), "shop.orders")
            assert sorted(lake.table("shop.orders").to_arrow().to_pylist(), key=repr) == rows
            table.delete("id = 2")
