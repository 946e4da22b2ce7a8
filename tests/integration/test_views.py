"""Views through a real service: names shared with tables, replacement, lists, restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from metaservice.client import AlreadyExistsError, BlockedError, InvalidError, MetaClient, NotFoundError, uuid7
from protos.laketx.v1 import catalog_pb2
from tests.integration.service import Service, service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, MetaClient]]:
    with (
        service(tmp_path_factory.mktemp("views") / "db") as (server, _),
        MetaClient(server.address, principal="ann") as client,
    ):
        yield server, client


@pytest.fixture
def client(served: tuple[Service, MetaClient]) -> MetaClient:
    return served[1]


def view(name: str, text: str = "SELECT 1 AS one", **more: object) -> catalog_pb2.View:
    columns = [catalog_pb2.ViewColumn(name="one", type="INT", comment="a number")]
    found = catalog_pb2.View(name=name, text=text, columns=columns)
    found.MergeFrom(catalog_pb2.View(**more))  # type: ignore[arg-type]
    return found


def table(name: str) -> catalog_pb2.Table:
    return catalog_pb2.Table(name=name, columns=[catalog_pb2.Column(name="id", type="bigint", nullable=True)])


def test_a_view_is_kept_as_it_was_given(client: MetaClient) -> None:
    client.create_namespace("kept", if_not_exists=True)
    wanted = view(
        "kept.v", comment="c", properties={"owner": "x"}, catalog="other", namespace=["a", "b"], settings={"k": "v"},
        query_columns=["1"], schema_mode="COMPENSATION",
    )  # fmt: skip
    made = client.put_view(wanted)
    assert made.create_time_us > 0
    assert made.replace_time_us == 0
    assert made.principal.name == "ann"
    found = client.get_view("KEPT.V")
    assert found == made
    for field in ("create_time_us", "principal"):
        found.ClearField(field)
    assert found == wanted


def test_one_name_is_a_table_or_a_view(client: MetaClient) -> None:
    client.create_namespace("names", if_not_exists=True)
    made = client.create_table(table("names.t"))
    client.put_view(view("names.v"))
    for name in ("names.v", "NAMES.V"):
        with pytest.raises(AlreadyExistsError) as taken:
            client.create_table(table(name))
        assert taken.value.reason == "VIEW_EXISTS"
        with pytest.raises(AlreadyExistsError, match="VIEW_EXISTS"):
            client.put_view(view(name))
    for name in ("names.t", "names.T"):
        for or_replace in (False, True):
            with pytest.raises(AlreadyExistsError, match="TABLE_EXISTS"):
                client.put_view(view(name), or_replace=or_replace)
    with pytest.raises(AlreadyExistsError, match="VIEW_EXISTS"):
        client.rename_table(made.table_id, "names.V")
    with pytest.raises(AlreadyExistsError, match="TABLE_EXISTS"):
        client.rename_view("names.v", "names.t")
    client.drop_table(made.table_id)
    client.put_view(view("names.t"))
    with pytest.raises(AlreadyExistsError, match="VIEW_EXISTS"):
        client.undrop_table(made.table_id)
    with pytest.raises(NotFoundError, match="TABLE_UNKNOWN"):
        client.get_table("names.v")
    with pytest.raises(BlockedError, match="NAMESPACE_NOT_EMPTY") as full:
        client.drop_namespace("names")
    assert full.value.facts["views"] == "2"
    assert client.drop_view("names.T")
    assert client.drop_view("names.v")
    assert not client.drop_view("names.v")
    client.drop_namespace("names")


def test_put_again_replaces_or_leaves(client: MetaClient) -> None:
    request = uuid7()
    made = client.put_view(view("again"), request_id=request)
    assert client.put_view(view("again"), request_id=request) == made
    assert client.put_view(view("again", "SELECT 2 AS one"), if_not_exists=True) == made
    replaced = client.put_view(view("AGAIN", "SELECT 3 AS one"), or_replace=True)
    assert (replaced.name, replaced.text) == ("again", "SELECT 3 AS one")
    assert replaced.create_time_us == made.create_time_us < replaced.replace_time_us
    with pytest.raises(NotFoundError, match="VIEW_UNKNOWN"):
        client.put_view(view("agian"), must_exist=True)
    assert client.put_view(view("fresh"), or_replace=True).replace_time_us == 0
    assert client.rename_view("fresh", "Fresh").name == "Fresh"
    assert client.rename_view("fresh", "later").name == "later"
    assert client.rename_view("fresh", "later").name == "later"  # the same call again


def test_what_is_no_view_is_refused(client: MetaClient) -> None:
    bad = [
        ("NAME_INVALID", view("a.b.c")),
        ("VIEW_INVALID", view("v", "")),
        ("VIEW_TOO_LARGE", view("v", "x" * 70_000)),
    ]
    for reason, wanted in bad:
        with pytest.raises(InvalidError, match=reason):
            client.put_view(wanted)
    with pytest.raises(NotFoundError, match="NAMESPACE_UNKNOWN"):
        client.put_view(view("nowhere.v"))


def test_lists_go_on_from_page_to_page(client: MetaClient) -> None:
    client.create_namespace("paged", if_not_exists=True)
    names = [f"paged.v{number}" for number in range(7)]
    for name in reversed(names):
        client.put_view(view(name))
    assert [one.name for one in client.list_views(namespace="Paged", page_size=2)] == names
    assert set(names) < {one.name for one in client.list_views(page_size=3)} | {"a name of another test"}


def test_views_outlive_a_restart(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        client.put_view(view("v"))
        client.put_view(view("gone"))
        client.drop_view("gone")
        client.rename_view("v", "renamed")
        before = list(client.list_views())
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        assert list(client.list_views()) == before
        with pytest.raises(AlreadyExistsError, match="VIEW_EXISTS"):
            client.create_table(table("Renamed"))
