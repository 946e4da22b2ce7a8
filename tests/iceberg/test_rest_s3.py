"""The REST catalog over a lake on S3: generated files lie there, and readers get keys for one table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import laketx
from metaservice.client import Credentials
from tests.iceberg.servers import catalog_of, served
from tests.integration.callers import guarded
from tests.integration.storage_server import REGION, SECRET, USER, storage_server

WAREHOUSE = "s3://lake/files"
pytestmark = pytest.mark.long  # MinIO is built from its sources


def test_tables_on_s3_are_read_with_the_keys_that_the_catalog_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage_server(tmp_path, "lake") as url:
        known = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        for name, text in {**known, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, text)
        flags = ["--storage-role", "arn:aws:iam::123456789012:role/lake", "--storage-sts-endpoint", url]
        flags += ["--storage-endpoint", url, "--storage-region", REGION]
        with guarded(tmp_path / "data", *flags) as company:
            company.owner.call("MaintenanceService/SetWarehouse", location=WAREHOUSE, marked=True)
            company.grant("user:bo", "admin")
            where, token = f"laketx://{company.service.address}", Credentials(token=company.token("bo"))
            with laketx.connect(where, warehouse=WAREHOUSE, credentials=token) as lake:
                table = lake.create_table("visits", "id bigint, note string")
                table.append([{"id": number, "note": "x"} for number in range(10)])
                table.append(pa.table({"id": range(10, 5_000), "note": ["y"] * 4_990}))
                table.delete("id < 5")
            company.grant("user:ana", "reader", table_id=table.table_id)
            words = ["--server", company.service.address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
            with served(*words, "--warehouse", WAREHOUSE) as server:
                for name in (*known, "AWS_ENDPOINT_URL"):
                    monkeypatch.delenv(name)
                for form in (2, 3):
                    headers = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
                    shown = catalog_of(server, form, token=company.token("ana"), **headers).load_table("default.visits")
                    assert shown.io.properties["s3.session-token"]
                    assert shown.scan().to_arrow().num_rows == 4_995
