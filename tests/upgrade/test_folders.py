"""A data folder goes to the newer release and back, written by processes that really run the releases."""

from contextlib import closing
from pathlib import Path

import pytest

from metaservice.client import BlockedError, MetaClient, add_column, default_column, uuid7
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.formats import FORMAT_KEY, decode_format, encode_format
from metaservice.store.port import Batch
from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.integration.service import TIMEOUT_S, Service
from tests.upgrade.releases import NOW, Release
from tests.upgrade.sides import ROWS, lake_at, serving

UNUSABLE = 74
ID = catalog_pb2.Column(name="id", type="bigint", nullable=True)
VIEW = catalog_pb2.View(
    name="v", text="SELECT 1 AS id", columns=[catalog_pb2.ViewColumn(name="id", type="bigint")]
)  # fmt: skip


def read(release: Release, service: Service) -> str:
    return release.run("story.py", service.address, "read", "t")


def refused(release: Release, data: Path) -> str:
    """What the release says of a folder that it doesn't start on."""
    service = release.service(data)
    process = service.spawn("127.0.0.1:0")
    try:
        assert process.wait(TIMEOUT_S) == UNUSABLE
    finally:
        process.kill()
        process.communicate()
    return service.said()


def test_a_folder_goes_to_the_newer_release_and_back(before: Release, tmp_path: Path) -> None:
    data, seen = tmp_path / "db", []
    for number, release in enumerate((before, NOW, before, NOW)):
        with serving(release, data) as service:
            if number < 2:
                release.run("story.py", service.address, "tell", "t" if number == 0 else "later")
            seen.append(read(before if release is NOW else NOW, service))
            with MetaClient(service.address) as client:
                assert client.get_status().store_format == 1
                setting = {"write.compression": "zstd"} if release is before else {"write.inline.rows": "0"}
                table_id = client.get_table("t_races").table_id
                client.alter_table(table_id, common_pb2.Alteration(set_properties=setting))
                assert client.get_table("later_plain" if number else "t_plain").table_id
            service.stop()
    assert len(set(seen)) == 1, "the releases read different things"


@pytest.mark.long
def test_a_backup_of_each_release_is_restored_by_the_other(before: Release, tmp_path: Path) -> None:
    for taker, restorer in ((before, NOW), (NOW, before)):
        place = tmp_path / taker.name
        place.mkdir()
        with serving(taker, place / "db") as service, MetaClient(service.address) as client:
            taker.run("story.py", service.address, "tell", "t")
            path = client.backup("one").path
            there = read(NOW, service)
        done = restorer.laketx("restore", "--backup", path, "--data", str(place / "new"))
        assert done.returncode == 0, done.stderr
        with serving(restorer, place / "new") as service:
            assert read(NOW, service).replace(' ["pipe", 3]', "") == there.replace(' ["pipe", 3]', "")


@pytest.mark.parametrize(
    "feature", ["inlined_rows", *(pytest.param(one, marks=pytest.mark.long) for one in ("column_defaults", "views"))]
)
def test_a_folder_that_uses_something_new_is_refused_by_the_older_release(
    featureless: Release, tmp_path: Path, feature: str
) -> None:
    data = tmp_path / "db"
    with serving(NOW, data) as service, lake_at(service.address, tmp_path / "files") as lake:
        table = lake.create_table("t", "id bigint, note string")
        assert lake.client.get_status().store_format == 1
        if feature == "inlined_rows":
            table.append(ROWS)
        elif feature == "column_defaults":
            lake.client.alter_columns(lake.client.get_table("t").table_id, default_column("id", "7"))
        else:
            lake.client.put_view(VIEW)
        assert lake.client.get_status().store_format == 2
        service.stop()
    said = refused(featureless, data)
    assert "FORMAT_TOO_NEW" in said
    with serving(NOW, data) as service, MetaClient(service.address) as client:
        assert client.get_status().store_format == 2
        assert [line for part in client.check() for line in part.problems] == []


def test_a_held_format_keeps_the_way_back_open(featureless: Release, tmp_path: Path) -> None:
    data = tmp_path / "db"
    with serving(NOW, data, "--store-format", "1") as service, lake_at(service.address, tmp_path / "files") as lake:
        client = lake.client
        assert list(client.get_status().features) == ["version_conditions"]
        table = lake.create_table("t", "id bigint, note string")
        table.append(ROWS)  # as files
        assert [one.file.inlined for one in client.list_files(client.get_table("t").table_id)] == [False]
        table_id = client.create_table(catalog_pb2.Table(name="raw", columns=[ID])).table_id
        txn_id = uuid7()
        file = common_pb2.DataFile(
            path=f"{txn_id}/f", rows=1, bytes=1, content=b"x", kind=common_pb2.FILE_KIND_INLINED
        )  # fmt: skip
        with pytest.raises(BlockedError, match="FEATURE_NOT_OFFERED"):
            client.append(table_id, [file], txn_id=txn_id)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(client, "offers", lambda _: True)
            with pytest.raises(BlockedError, match="FEATURE_NOT_OFFERED"):
                client.put_view(VIEW)
            with pytest.raises(BlockedError, match="FEATURE_NOT_OFFERED"):
                client.alter_columns(table_id, default_column("id", "7"))
            default = catalog_pb2.Column(name="id", type="bigint", nullable=True, default_sql="7")
            with pytest.raises(BlockedError, match="FEATURE_NOT_OFFERED"):
                client.create_table(catalog_pb2.Table(name="other", columns=[default]))
        client.alter_columns(table_id, add_column("n", "int"))
        assert client.get_status().store_format == 1
        service.stop()
    with serving(featureless, data) as service, lake_at(service.address, tmp_path / "files") as lake:
        assert sorted(lake.table("t").to_arrow().to_pylist(), key=lambda row: row["id"]) == ROWS


def test_a_folder_of_before_formats_were_raised_gets_its_number(tmp_path: Path) -> None:
    data = tmp_path / "db"
    with serving(NOW, data) as service, lake_at(service.address, tmp_path / "files") as lake:
        lake.create_table("t", "id bigint, note string").append(ROWS)
        service.stop()
    with closing(RocksStore(data)) as store:
        batch = Batch()
        batch.put(FORMAT_KEY, encode_format(1))
        store.write(batch)
    with serving(NOW, data) as service:
        service.stop()
    with closing(RocksStore(data)) as store:
        assert decode_format(store.get(FORMAT_KEY)) == 2
