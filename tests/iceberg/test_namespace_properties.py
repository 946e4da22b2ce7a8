"""Properties of namespaces, and answers that a client has already."""

from __future__ import annotations

import pytest

from laketx import Lake
from metaservice.client import MetaServiceError
from tests.iceberg.servers import Server, catalog_of
from tests.iceberg.writers import error_of, made

pytest.importorskip("pyiceberg.catalog", reason="pyiceberg is not installed")


def test_properties_are_set_replaced_and_removed_by_pyiceberg(lake: Lake, server: Server) -> None:
    catalog = catalog_of(server, 2)
    catalog.create_namespace("owned", {"owner": "ana", "note": "a"})
    found = catalog.update_namespace_properties("owned", removals={"note", "none"}, updates={"owner": "bo", "new": "x"})
    assert (sorted(found.updated), found.removed, found.missing) == (["new", "owner"], ["note"], ["none"])
    assert catalog.load_namespace_properties("owned") == {"owner": "bo", "new": "x"}
    kept = lake.client.get_namespace("owned").properties
    assert dict(kept) == {"user.iceberg.owner": "bo", "user.iceberg.new": "x"}
    catalog.drop_namespace("owned")


def test_what_can_not_be_changed_is_refused(lake: Lake, server: Server) -> None:
    def change(name: str, **body: object) -> tuple[int, str, str]:
        return error_of(server.post(f"/v1/v3/namespaces/{name}/properties", body))

    assert change("shop", updates={"a": "1"}, removals=["a"])[:2] == (422, "UnprocessableEntityException")
    assert change("nowhere", updates={"a": "1"})[:2] == (404, "NoSuchNamespaceException")
    assert change("shop", removals="a")[0] == 400
    assert "shows the tables that are in none" in change("default", updates={"a": "1"})[2]
    with pytest.raises(MetaServiceError, match="PROPERTY_UNKNOWN"):
        lake.client.alter_namespace("shop", set_properties={"owner": "ana"})
    lake.client.alter_namespace("shop", set_properties={f"user.p{number}": "x" for number in range(64)})
    with pytest.raises(MetaServiceError, match="TOO_MANY_PROPERTIES"):
        lake.client.alter_namespace("shop", set_properties={"user.more": "x"})
    assert len(lake.client.get_namespace("shop").properties) == 64
    lake.client.alter_namespace("shop", remove_properties=[f"user.p{number}" for number in range(64)])


def test_etags_are_weak_and_compared_so(server: Server) -> None:
    theirs = made(server, "tagged")
    path = "/v1/v2/namespaces/shop/tables/tagged"
    etag = server.get(path).headers["etag"]
    assert etag.startswith('W/"')
    for held in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        assert server.get(path, headers={"if-none-match": held}).status_code == 304, held
    assert server.get(path, headers={"if-none-match": 'W/"other"'}).status_code == 200
    with theirs.transaction() as transaction:
        transaction.set_properties({"a": "b"})
    assert server.get(path, headers={"if-none-match": etag}).status_code == 200
