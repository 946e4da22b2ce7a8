"""The release before and this one side by side: a client of one, a service of the other, and what only one knows."""

from pathlib import Path

import pytest

from metaservice.client import (
    BlockedError,
    InvalidError,
    MetaClient,
    NotFoundError,
    default_column,
    rename_column,
    uuid7,
)
from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.upgrade.releases import NOW, Release
from tests.upgrade.sides import ROWS, conduct, lake_at, serving


def test_every_call_of_each_release_works_with_the_service_of_the_other(before: Release, tmp_path: Path) -> None:
    told, read = [], []
    for service, client in ((NOW, NOW), (NOW, before), (before, NOW)):
        with serving(service, tmp_path / f"{service.name}-{client.name}") as running:
            told.append(client.run("story.py", running.address, "tell", "t"))
            read.append({each.run("story.py", running.address, "read", "t") for each in (before, NOW)})
    assert told[0] == told[1] == told[2]
    assert [len(each) for each in read] == [1, 1, 1], "the releases read different things"


# -- what only the newer release knows ---------------------------------------------------------------------------------


def test_small_writes_of_the_present_client_reach_the_older_service_as_files(
    featureless: Release, tmp_path: Path
) -> None:
    with serving(featureless, tmp_path / "db") as running, lake_at(running.address, tmp_path / "files") as lake:
        lake.create_table("plain", "id bigint, note string")
        lake.create_table("keyed", "id bigint, note string", primary_key=["id"])
        for name in ("plain", "keyed"):
            lake.table(name).append(ROWS) if name == "plain" else lake.table(name).upsert(ROWS)
            lake.create_table(f"{name}_once", "id bigint, note string")
            for _ in range(2):
                lake.table(f"{name}_once").append(ROWS, app_id="job", app_version=7)
            assert lake.table(f"{name}_once").count() == len(ROWS), "the older service does not say what a job wrote"
        lake.table("keyed").delete(keys=[1])
        assert sorted(lake.table("plain").to_arrow().to_pylist(), key=lambda row: row["id"]) == ROWS
        assert lake.table("keyed").to_arrow().to_pylist() == ROWS[1:]
        for name in ("plain", "keyed"):
            table_id = lake.client.get_table(name).table_id
            paths = [tmp_path / "files" / table_id / one.file.path for one in lake.client.list_files(table_id)]
            assert all(path.exists() for path in paths), "an entry without a file"


def test_the_older_service_refuses_inlined_rows_that_reach_it(
    featureless: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has asked a newer service meets the older one, if somebody goes back at that moment."""
    with serving(featureless, tmp_path / "db") as running, lake_at(running.address, tmp_path / "files") as lake:
        table = lake.create_table("plain", "id bigint, note string")
        assert not lake.client.offers("inlined_rows")
        monkeypatch.setattr(lake.client, "offers", lambda _: True)
        with pytest.raises(InvalidError, match="FILE_KIND_INVALID"):
            table.append(ROWS)
        assert table.to_arrow().to_pylist() == []


@pytest.mark.parametrize("call", ["scan", "files", "changes"])
def test_an_older_client_is_refused_inlined_rows_in_words(featureless: Release, tmp_path: Path, call: str) -> None:
    with serving(NOW, tmp_path / "db") as running, lake_at(running.address, tmp_path / "files") as lake:
        table = lake.create_table("plain", "id bigint, note string")
        table.append(ROWS)
        said, facts = conduct(featureless, running.address, call, "plain")
        assert (said, facts.get("lacks")) == ("CLIENT_TOO_OLD", "inlined_rows")
        assert conduct(NOW, running.address, call, "plain")[0] == "ok"


@pytest.mark.parametrize("service", ["featureless", "now"])
def test_a_condition_means_the_same_to_each_release_after_columns_swapped_their_names(
    featureless: Release, tmp_path: Path, service: str
) -> None:
    """Earlier releases name the newest columns where this one names those of the version."""
    with serving(featureless if service == "featureless" else NOW, tmp_path / "db") as running:
        with MetaClient(running.address) as client:
            columns = [catalog_pb2.Column(name=name, type="bigint", nullable=True) for name in "ab"]
            table_id = client.create_table(catalog_pb2.Table(name="t", columns=columns)).table_id
            txn_id = uuid7()
            file = common_pb2.DataFile(path=f"{txn_id}/f", rows=2, bytes=9)
            for column_id, low, high in ((1, 1, 5), (2, 100, 200)):
                stats = file.stats.add(column_id=column_id)
                stats.min.integer, stats.max.integer = low, high
            client.append(table_id, [file], txn_id=txn_id)
            steps = (("a", "c"), ("b", "a"), ("c", "b"))
            client.alter_columns(table_id, *[rename_column(old, new) for old, new in steps])
        for release in (featureless, NOW):
            assert conduct(release, running.address, "swapped", "t") == ("ok", 1)


def test_an_older_worker_gets_no_task_with_inlined_rows(featureless: Release, tmp_path: Path) -> None:
    with serving(NOW, tmp_path / "db") as running, lake_at(running.address, tmp_path / "files") as lake:
        table = lake.create_table("plain", "id bigint, note string")
        for _ in range(3):
            table.append(ROWS)
        table_id = lake.client.get_table("plain").table_id
        assert len(lake.client.request_tasks(table_id, common_pb2.OPERATION_MINOR_COMPACT).tasks) == 1
        assert conduct(featureless, running.address, "claim", "plain") == ("ok", None)
        assert conduct(NOW, running.address, "claim", "plain") == ("ok", 3)


def test_an_older_writer_is_refused_by_a_table_with_defaults(featureless: Release, tmp_path: Path) -> None:
    """It would write NULL where the default belongs."""
    with serving(NOW, tmp_path / "db") as running, MetaClient(running.address) as client:
        column = catalog_pb2.Column(name="id", type="bigint", nullable=True)
        table_id = client.create_table(catalog_pb2.Table(name="t", columns=[column])).table_id
        assert conduct(featureless, running.address, "append", "t")[0] == "ok"
        client.alter_columns(table_id, default_column("id", "7"))
        for call in ("append", "begin_insert"):
            said, facts = conduct(featureless, running.address, call, "t")
            assert (said, facts.get("lacks")) == ("CLIENT_TOO_OLD", "column_defaults")
            assert conduct(NOW, running.address, call, "t")[0] == "ok"
        assert conduct(featureless, running.address, "begin_delete", "t") == ("ok", "begun")


def test_the_present_client_refuses_what_the_older_service_would_drop(featureless: Release, tmp_path: Path) -> None:
    with serving(featureless, tmp_path / "db") as running, MetaClient(running.address) as client:
        column = catalog_pb2.Column(name="id", type="bigint", nullable=True, default_sql="7")
        with pytest.raises(BlockedError) as refused:
            client.create_table(catalog_pb2.Table(name="t", columns=[column]))
        assert (refused.value.reason, refused.value.facts["lacks"]) == ("FEATURE_NOT_OFFERED", "column_defaults")
        with pytest.raises(NotFoundError):
            client.get_table("t")
        column.default_sql = ""
        table_id = client.create_table(catalog_pb2.Table(name="t", columns=[column])).table_id
        with pytest.raises(BlockedError, match="FEATURE_NOT_OFFERED"):
            client.alter_columns(table_id, default_column("id", "7"))
        with pytest.raises(BlockedError) as unknown:
            client.put_view(catalog_pb2.View(name="v", text="SELECT 1"))
        assert unknown.value.reason == "FEATURE_NOT_OFFERED"


def test_a_view_is_no_table_to_an_older_client(featureless: Release, tmp_path: Path) -> None:
    with serving(NOW, tmp_path / "db") as running, MetaClient(running.address) as client:
        column = catalog_pb2.Column(name="id", type="bigint", nullable=True)
        client.create_table(catalog_pb2.Table(name="t", columns=[column]))
        shown = catalog_pb2.ViewColumn(name="id", type="bigint")
        client.put_view(catalog_pb2.View(name="a_view", text="SELECT 1 AS id", columns=[shown]))
        assert conduct(featureless, running.address, "scan", "a_view")[0] == "TABLE_UNKNOWN"
        assert conduct(featureless, running.address, "create_a_view", "t")[0] == "VIEW_EXISTS"
