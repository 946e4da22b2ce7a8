"""Files from outside, over the wire: where they may lie, and that no purge deletes what any table names."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from metaservice.client import BlockedError, InvalidError, MetaServiceError
from protos.laketx.v1 import common_pb2
from tests.integration.warehouse import GRACE_MS, INSERT, OVERWRITE, Warehouse, warehouse

Register = Callable[[Warehouse, list[str]], None]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as found:
        yield found


def external(paths: list[str]) -> list[common_pb2.DataFile]:
    return [common_pb2.DataFile(path=path, rows=3, bytes=10, external=True) for path in paths]


def by_stream(lake: Warehouse, paths: list[str]) -> None:
    with lake.begin(INSERT) as txn:
        txn.register(lake.table_id, external(paths))
        txn.commit([lake.change()])


def by_commit(lake: Warehouse, paths: list[str]) -> None:
    with lake.begin(INSERT) as txn:
        txn.commit([common_pb2.Change(table_id=lake.table_id, files=external(paths))])


def by_append(lake: Warehouse, paths: list[str]) -> None:
    lake.client.append(lake.table_id, external(paths))


WAYS = [by_stream, by_commit, by_append]


def reason(call: Callable[..., None], *given: Any) -> str:
    with pytest.raises(MetaServiceError) as caught:
        call(*given)
    return caught.value.reason


@pytest.mark.parametrize("way", WAYS)
def test_a_file_inside_a_tables_folder_is_refused_under_every_spelling(lake: Warehouse, way: Register) -> None:
    other = lake.create("other")
    (staged,) = lake.write(INSERT, "a")
    dropped = lake.create("gone")
    lake.client.drop_table(dropped)
    root = str(lake.folder)
    spellings = [
        f"{root}/{lake.table_id}/{staged}",
        f"{root}/{other}/x.parquet",
        f"{root}/{dropped}/x.parquet",
        f"file:{root}/{lake.table_id}/{staged}",
        f"file://{root}/{lake.table_id}/{staged}",
        f"FILE://localhost{root}//{lake.table_id}/./{staged}",
        f"/elsewhere/../{root}/{other}/x.parquet",
        f"file:{root}/{other[:-1]}%{ord(other[-1]):x}/x.parquet",
        f"s3a://bucket/lake/{other.upper()}/x.parquet",
        f"s3://bucket/lake/%{ord(other[0]):x}{other[1:]}%2Fx.parquet",
    ]
    for path in spellings:
        assert reason(way, lake, [path]) == "PATH_IN_LAKE", path
    assert lake.head == 1


@pytest.mark.parametrize("way", WAYS)
def test_the_same_file_twice_is_refused_by_other_spellings(lake: Warehouse, way: Register) -> None:
    spellings = ["file:/in/a%20b.parquet", "file:///in/a b.parquet", "/in//a b.parquet", "/x/../in/a b.parquet"]
    for other in spellings[1:]:
        assert reason(way, lake, [spellings[0], other]) == "PATH_TWICE"
    way(lake, spellings[:1])
    assert lake.list_files(lake.head) == {"/in/a b.parquet"}
    for other in spellings:
        assert reason(way, lake, [other]) == "PATH_LIVE"
    way(lake, ["s3a://bucket/a.parquet"])
    assert reason(way, lake, ["s3://bucket//a.parquet"]) == "PATH_LIVE"
    lake.write(OVERWRITE, "new")
    way(lake, spellings[1:2])  # it is live no more


@pytest.mark.parametrize("way", WAYS)
def test_secrets_the_web_and_relative_paths_are_refused(lake: Warehouse, way: Register) -> None:
    for path in (
        "in/a.parquet",
        "http://host/a.parquet",
        "https://host/a.parquet?sig=SECRET",
        "s3://key:SECRET@bucket/a.parquet",
        "s3://bucket/a.parquet?X-Amz-Signature=SECRET",
        "file:in/a.parquet",
        "/in/",
    ):
        with pytest.raises(InvalidError, match="PATH_INVALID") as caught:
            way(lake, [path])
        assert "SECRET" not in str(caught.value)


def test_spellings_of_a_file_in_several_messages_count_once(lake: Warehouse) -> None:
    def write() -> None:
        with lake.begin(INSERT) as txn:
            for path in ("file:/in/a.parquet", "/in/a.parquet", "/in//a.parquet"):
                txn.register(lake.table_id, external([path]))
            txn.commit([lake.change()])

    assert reason(write) == "REGISTRATION_INCOMPLETE"
    assert lake.head == 0


def test_a_file_may_be_overwritten_by_itself(lake: Warehouse) -> None:
    by_stream(lake, ["/in/a.parquet"])
    with lake.begin(OVERWRITE) as txn:
        change = lake.change()
        change.scope.all = True
        txn.register(lake.table_id, external(["file:///in/a.parquet"]))
        txn.commit([change])
    assert lake.list_files(lake.head) == {"/in/a.parquet"}


def test_an_id_that_names_no_table_is_a_folder_like_any_other(lake: Warehouse) -> None:
    by_stream(lake, [f"/in/{uuid4()}/a.parquet"])
    assert lake.head == 1


def test_a_table_that_is_made_later_keeps_what_was_imported_from_its_folder(lake: Warehouse) -> None:
    """Clients choose ids of tables; nothing in the folder was known to be a table's."""
    table_id = str(uuid4())
    by_stream(lake, [f"{lake.folder}/{table_id}/t/a.parquet"])
    told = lake.client.check_paths(table_id, ["t/a.parquet", "t/b.parquet"])
    assert list(told.needed) == ["t/a.parquet"]


def test_only_allowed_locations_are_imported_from(tmp_path: Path) -> None:
    with warehouse(tmp_path, ["--external-locations", f"file://{tmp_path}/in, s3://bucket/raw"]) as lake:
        by_stream(lake, [f"{tmp_path}/in/a.parquet", "s3a://bucket/raw/x/b.parquet"])
        for path in (f"{tmp_path}/inside/a.parquet", f"{tmp_path}/in/../b.parquet", "s3://bucket/rawer/b.parquet"):
            with pytest.raises(BlockedError, match="PATH_NOT_ALLOWED"):
                by_stream(lake, [path])


def test_the_purge_asks_for_every_table_before_it_deletes(lake: Warehouse) -> None:
    """What another table took in before that was refused: a dead file, a stray, and a dropped table's."""
    reader, lender = lake.create("reader"), lake.create("lender")
    (dead,) = lake.write(INSERT, "a")
    stray = lake.abort()[1]
    shared = [lake.whole(dead), lake.whole(stray)]
    lake.table_id, own = lender, lake.table_id
    (lent,) = lake.write(INSERT, "b")
    shared.append(lake.whole(lent))
    lake.client.drop_table(lender)
    lake.table_id = own
    for path in shared:
        lake.rows.setdefault(str(path), lake.rows[str(path.relative_to(path.parents[2]))])
        lake.plant_external(path, reader)
    lake.write(OVERWRITE, "new")
    files = 0
    for _ in range(3):
        lake.pass_time(GRACE_MS, looks=20)
        report = lake.purge()
        assert report.failures == []
        files += report.files
    assert all(path.exists() for path in shared)
    assert files == 0
    assert dead not in list(lake.client.list_purgeable(lake.table_id))
    lake.table_id = reader
    lake.write(OVERWRITE, "mine")
    lake.table_id = own
    for _ in range(3):
        lake.pass_time(GRACE_MS, looks=20)
        lake.purge()
    assert not shared[0].exists(), "nobody names it any more"
    assert not shared[2].exists()
    assert not (lake.folder / lender).exists()


def test_the_purge_follows_no_link(lake: Warehouse, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    (outside / "0").mkdir(parents=True)
    for name in ("0/x.parquet", "y.parquet"):
        (outside / name).write_text("precious")
    ended = lake.abort()
    folder = lake.folder / lake.table_id / ended[0].partition("/")[0]
    (folder / "linked").symlink_to(outside)
    (folder / "linked.parquet").symlink_to(outside / "y.parquet")
    (dead,) = lake.write(OVERWRITE, "a")
    lake.write(OVERWRITE, "b")
    moved = lake.whole(dead).parent.rename(tmp_path / "moved")
    lake.whole(dead).parent.symlink_to(moved)
    gone = lake.create("gone")
    (lake.folder / gone).symlink_to(outside)
    lake.client.drop_table(gone)
    lake.pass_time(GRACE_MS, looks=40)
    report = lake.purge()
    assert report.failed >= 2
    assert any("is a link" in failure for failure in report.failures)
    assert (outside / "0" / "x.parquet").exists()
    assert (outside / "y.parquet").exists()
    assert (moved / dead.rpartition("/")[2]).exists()
    assert list(lake.client.list_purgeable(lake.table_id)) == [dead]
    assert not lake.whole(ended[0]).exists(), "what is no link is swept"
    assert (folder / "linked").is_symlink()
