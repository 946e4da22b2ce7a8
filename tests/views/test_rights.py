"""Who may create, refresh and read a materialized view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx import Credentials, DeniedError, Lake, NotFoundError, connect
from tests.conformance.play import new_uuid7
from tests.integration.callers import Guarded, guarded

QUERY = "SELECT day, count(*) AS n FROM shop.orders GROUP BY day"


@pytest.fixture
def guards(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path / "data") as made:
        for name in ("shop", "views"):
            made.owner.call("CatalogService/CreateNamespace", name=name, request_id=new_uuid7())
        yield made


def lake_of(guards: Guarded, user: str, folder: Path) -> Lake:
    address = f"laketx://{guards.service.address}"
    return connect(address, warehouse=str(folder / "files"), credentials=Credentials(token=guards.token(user)))


def test_a_view_takes_reader_on_its_sources_and_writer_on_itself(guards: Guarded, tmp_path: Path) -> None:
    for user, role, place in (("amy", "writer", "shop"), ("ana", "reader", "shop"), ("ana", "writer", "views")):
        guards.grant(f"user:{user}", role, namespace=place)
    with lake_of(guards, "amy", tmp_path) as amy, lake_of(guards, "ana", tmp_path) as ana:
        orders = amy.create_table("shop.orders", "id bigint, day bigint")
        orders.append([{"id": 1, "day": 1}])
        view = ana.create_materialized_view("views.daily", QUERY)
        orders.append([{"id": 2, "day": 1}])
        assert view.refresh().kind == "incremental"
        assert view.verify().holds
        with pytest.raises(NotFoundError, match="TABLE_UNKNOWN"):
            amy.materialized_view("views.daily")

        guards.grant("user:ben", "reader", namespace="views")
        with lake_of(guards, "ben", tmp_path) as ben:
            shown = ben.materialized_view("views.daily")
            assert shown.to_arrow().to_pylist() == [{"day": 1, "n": 2}]
            with pytest.raises(NotFoundError, match="TABLE_UNKNOWN"):
                shown.verify()  # it reads the sources
            guards.grant("user:ben", "reader", namespace="shop")
            assert shown.verify().holds
            orders.append([{"id": 3, "day": 2}])
            with pytest.raises(DeniedError, match="ROLE_MISSING"):
                shown.refresh()
            guards.grant("user:ben", "writer", namespace="views")
            with pytest.raises(DeniedError, match="ROLE_MISSING"):
                shown.refresh()  # the cursors are ana's
            guards.grant("user:ben", "writer", namespace="shop")
            assert shown.refresh().kind == "incremental"
            assert shown.verify().holds
