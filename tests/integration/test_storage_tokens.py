"""Temporary keys of S3 for one table: what they open, what they don't, and where they are seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import grpc
import pyarrow as pa
import pytest
from pyarrow import fs

import laketx
from metaservice.client import Credentials, InvalidError, MetaClient
from tests.integration.callers import Guarded, create, guarded
from tests.integration.service import TIMEOUT_S, facts_of, reason_of, service, wait_until
from tests.integration.storage_server import REGION, SECRET, USER, storage_server
from worker.files import storage_keys
from worker.files.storage_keys import StorageKeys, file_system

KEY: Final = "AccessService/GetStorageCredentials"
WAREHOUSE: Final = "s3://lake/files"
ROWS: Final = pa.table({"id": pa.array(range(20_000), pa.int64()), "v": ["row"] * 20_000})


@contextmanager
def keys_of_the_operator(url: str) -> Iterator[None]:
    """The service's own, by AWS's environment. Clients have none."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", USER)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("LAKETX_STORAGE_ROLE", "arn:aws:iam::123456789012:role/lake")
        patch.setenv("LAKETX_STORAGE_STS_ENDPOINT", url)
        patch.setenv("LAKETX_STORAGE_ENDPOINT", url)
        patch.setenv("LAKETX_STORAGE_REGION", REGION)
        yield


@contextmanager
def lake_on(folder: Path, url: str) -> Iterator[Guarded]:
    with keys_of_the_operator(url):
        starting = guarded(folder / "data", "--audit-file", str(folder / "audit.jsonl"))
        found = starting.__enter__()
    try:
        found.owner.call("MaintenanceService/SetWarehouse", location=WAREHOUSE, marked=True)
        yield found
    finally:
        starting.__exit__(None, None, None)


def connect(lake: Guarded, token: str) -> laketx.Lake:
    where = f"laketx://{lake.service.address}"
    return laketx.connect(where, warehouse=WAREHOUSE, credentials=Credentials(token=token), storage_keys=True)


def refused(work: Any) -> None:
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        work()


@pytest.mark.long
def test_a_key_opens_the_files_of_its_table_and_nothing_else(tmp_path: Path) -> None:
    with storage_server(tmp_path, "lake") as url, lake_on(tmp_path, url) as lake:
        lake.owner.call("CatalogService/CreateNamespace", name="shop", request_id=laketx.uuid7())
        lake.grant("user:wanda", "writer", namespace="shop")
        with connect(lake, lake.token("wanda")) as writing:
            orders = writing.create_table("shop.orders", "id bigint, v string")
            items = writing.create_table("shop.items", "id bigint, v string", primary_key=["id"])
            orders.append(ROWS)
            items.upsert(ROWS)
            orders.delete("id < 10")
            assert (orders.refresh().to_arrow().num_rows, items.refresh().to_arrow().num_rows) == (19_990, 20_000)
        lake.grant("user:rita", "reader", table_id=orders.table_id)
        rita = lake.token("rita")
        with connect(lake, rita) as reading:
            assert reading.table("shop.orders").to_arrow().num_rows == 19_990
            assert reading.tables() == ["shop.orders"]

        reader, writer = lake.caller(rita), lake.named("wanda")
        assert reader.outcome(KEY, table_id=items.table_id) == "TABLE_UNKNOWN"
        assert reader.outcome(KEY, table_id=orders.table_id, write=True) == "ROLE_MISSING"
        key = reader.call(KEY, table_id=orders.table_id)
        files, place = file_system(key), key.location.removeprefix("s3://")
        listed = files.get_file_info(fs.FileSelector(place, recursive=True))
        [data] = [one.path for one in listed if one.path.endswith("part-00000-0.parquet")]
        assert files.open_input_stream(data).read(4) == b"PAR1"
        refused(lambda: files.open_output_stream(f"{place}/mine").close())
        refused(lambda: files.delete_file(data))
        refused(lambda: files.get_file_info(fs.FileSelector(f"lake/files/{items.table_id}", recursive=True)))
        refused(lambda: files.get_file_info(fs.FileSelector("lake/files")))

        other = file_system(writer.call(KEY, table_id=items.table_id, write=True))
        refused(lambda: other.open_input_stream(data).read(4))
        refused(lambda: other.open_output_stream(f"{place}/theirs").close())
        refused(lambda: other.delete_file(data))
        assert reader.call(KEY, table_id=orders.table_id) == key  # until half of its time is over

        audit = tmp_path / "audit.jsonl"
        wait_until(lambda: audit.read_text(encoding="utf-8").count("GetStorageCredentials") >= 6)
        seen = audit.read_text(encoding="utf-8")
        for text in (seen, lake.service.said()):
            assert key.secret_access_key not in text
            assert key.session_token not in text
        command = [sys.executable, "-m", "metaservice.cli", "--server", f"laketx://{lake.service.address}"]
        said = subprocess.run(
            [*command, "storage-key", "shop.orders"], env={**os.environ, "LAKETX_TOKEN": rita},
            capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
        )  # fmt: skip
        assert json.loads(said.stdout)["AccessKeyId"] == key.access_key_id
        assert key.secret_access_key not in said.stderr


@pytest.mark.long
def test_a_key_is_renewed_when_half_of_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with storage_server(tmp_path, "lake") as url, lake_on(tmp_path, url) as lake:
        table_id = create(lake.owner, "t")
        client = MetaClient(f"unix:{lake.service.folder}/owner.sock")
        made = count(1)
        monkeypatch.setattr(storage_keys, "file_system", lambda _: next(made))
        expires = client.storage_credentials(table_id, write=True).expire_time_us
        now_us = [expires - 3_600_000_000]
        keys = StorageKeys(client, lambda: now_us[0])
        assert [keys.files(table_id), keys.files(table_id)] == [1, 1]
        now_us[0] += 1_700_000_000
        assert keys.files(table_id) == 1
        now_us[0] += 200_000_000
        assert keys.files(table_id) == 2
        client.close()


def test_a_service_without_a_role_gives_none(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (one, _), MetaClient(f"laketx://{one.address}") as client:
        with pytest.raises(InvalidError) as caught:
            client.storage_credentials(laketx.uuid7())
        assert caught.value.reason == "STORAGE_TOKENS_OFF"


def test_a_token_service_that_is_away_and_a_warehouse_elsewhere_are_told(tmp_path: Path) -> None:
    with lake_on(tmp_path, "http://127.0.0.1:1") as lake:
        table_id = create(lake.owner, "t")
        with pytest.raises(grpc.RpcError) as caught:
            lake.owner.call(KEY, table_id=table_id)
        assert reason_of(caught.value) == "STORAGE_TOKENS_UNREACHABLE"
        assert SECRET not in str(caught.value)
        lake.owner.call("MaintenanceService/SetWarehouse", location="/srv/lake", marked=True, replace=True)
        with pytest.raises(grpc.RpcError) as caught:
            lake.owner.call(KEY, table_id=table_id)
        assert reason_of(caught.value) == "STORAGE_WITHOUT_TOKENS"
        assert facts_of(caught.value)["warehouse"] == "/srv/lake"


def test_a_key_for_a_table_to_be_made_needs_a_new_id_and_the_right_to_make_it(tmp_path: Path) -> None:
    with lake_on(tmp_path, "http://127.0.0.1:1") as lake:
        lake.owner.call("CatalogService/CreateNamespace", name="shop", request_id=laketx.uuid7())
        lake.grant("user:wanda", "writer", namespace="shop")
        lake.grant("user:rita", "reader", namespace="shop")
        writer, reader, stranger = (lake.named(name) for name in ("wanda", "rita", "sam"))
        new = laketx.uuid7()
        asked = {"table_id": new, "write": True, "new_table": "shop.new"}
        goes = "STORAGE_TOKENS_UNREACHABLE"  # all but the token service agree
        assert writer.outcome(KEY, **asked) == goes
        assert writer.outcome(KEY, **asked | {"new_table": "new"}) == "ROLE_MISSING", "in no namespace"
        assert writer.outcome(KEY, **asked | {"new_table": "other.new"}) == "NAMESPACE_UNKNOWN"
        assert reader.outcome(KEY, **asked) == "ROLE_MISSING"
        assert stranger.outcome(KEY, **asked) == "NAMESPACE_UNKNOWN"
        there, gone = create(writer, "shop.there"), create(writer, "shop.gone")
        lake.owner.call("CatalogService/DropTable", table_id=gone)
        hour_ms = 3_600_000
        old, ahead = (aged(new, by_ms) for by_ms in (-2 * hour_ms, 2 * hour_ms))
        for known in (there, gone, old, ahead):
            assert writer.outcome(KEY, **asked | {"table_id": known}) == "TABLE_ID_NOT_NEW"
        assert writer.outcome(KEY, **asked | {"table_id": str(uuid4())}) == "TRANSACTION_ID_INVALID"
        assert writer.outcome(KEY, **asked | {"table_id": "*"}) == "TABLE_ID_INVALID"


def aged(table_id: str, by_ms: int) -> str:
    time_ms = int(table_id[:8] + table_id[9:13], 16) + by_ms
    return f"{time_ms >> 16:08x}-{time_ms & 0xFFFF:04x}{table_id[13:]}"


def test_keys_are_for_warehouses_on_s3(tmp_path: Path) -> None:
    with pytest.raises(laketx.InputError) as caught:
        laketx.connect(tmp_path, storage_keys=True)
    assert caught.value.reason == "STORAGE_KEYS_NOT_S3"
