"""The REST catalog, as other people's readers use it."""

from __future__ import annotations

import os
import threading
from base64 import urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from laketx import Lake
from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from metaservice.client import widen_column
from tests.arrow.tables import texts
from tests.iceberg.servers import Server, by_duckdb, by_polars, by_pyiceberg, catalog_of, served, served_folder
from tests.integration.callers import create, guarded
from tests.integration.odd_server import DEEP
from tests.integration.service import free_address
from tests.spark.histories import grow
from tests.spark.reading import LabLake

BOTH = pytest.mark.parametrize("form", [2, 3])
READERS = {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb, "polars": by_polars}
ROWS = [{"id": number, "note": f"n{number}"} for number in range(10)]


@pytest.fixture(scope="module")
def snapshots() -> int:
    return 3


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "keyed"),
    [
        pytest.param(2, False, id="2-append"),
        pytest.param(3, True, id="3-keyed"),
        pytest.param(2, True, id="2-keyed", marks=pytest.mark.long),
        pytest.param(3, False, id="3-append", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("reader", sorted(READERS))
def test_readers_see_the_rows_of_each_shown_version(
    lab: LabLake, server: Server, reader: str, keyed: bool, form: int
) -> None:
    table = grow(lab, f"r_{reader}_{form}_{keyed}", 3, keyed=keyed, steps=6)
    read = READERS[reader]
    versions = [version for version in sorted(table.at) if version >= max(table.at) - 3]
    assert len(versions) > 1
    for version in [*versions, None]:
        found = read(server, form, table.meta.name, None if version is None else version + 1)
        rows = table.at[versions[-1] if version is None else version].values()
        assert texts(found) == sorted(repr(tuple(row[name] for name in found.schema.names)) for row in rows), version


@BOTH
def test_a_commit_is_seen_at_once(lake: Lake, server: Server, form: int) -> None:
    table = lake.create_table(f"fresh{form}", "id bigint, note string")
    shown = catalog_of(server, form).load_table(f"default.fresh{form}")
    for count in range(1, 8):
        table.append([{"id": count, "note": "x"}])
        assert shown.refresh().scan().to_arrow().num_rows == count
        assert shown.current_snapshot().snapshot_id == count + 1
    assert [one.snapshot_id for one in shown.snapshots()] == [5, 6, 7, 8]
    assert [one.parent_snapshot_id for one in shown.snapshots()] == [4, 5, 6, 7]


def test_tags_stay_shown(lake: Lake, server: Server) -> None:
    table = lake.create_table("tagged", "id bigint, note string")
    table.append(ROWS)
    table.view.client.create_tag(table.table_id, "first", version=1)
    for number in range(6):
        table.delete(f"id = {number}")
    shown = catalog_of(server).load_table("default.tagged")
    assert shown.scan().to_arrow().num_rows == 4
    assert shown.scan().use_ref("first").to_arrow().num_rows == 10
    assert sorted(one.snapshot_id for one in shown.snapshots()) == [2, 5, 6, 7, 8]


# -- the specification -------------------------------------------------------------------------------------------------


def test_namespaces_and_tables_are_listed_in_pages(lake: Lake, server: Server) -> None:
    for name in ("a", "b", "c"):
        lake.create_table(f"paged.{name}", "id bigint")
    catalog = catalog_of(server)
    assert {("default",), ("paged",)} <= set(catalog.list_namespaces())
    assert catalog.list_tables("paged") == [("paged", "a"), ("paged", "b"), ("paged", "c")]
    path = "/v1/v3/namespaces/paged/tables"
    first = server.get(path, params={"pageSize": "2", "pageToken": ""}).json()
    assert [one["name"] for one in first["identifiers"]] == ["a", "b"]
    rest = server.get(path, params={"pageSize": "2", "pageToken": first["next-page-token"]}).json()
    assert rest == {"identifiers": [{"namespace": ["paged"], "name": "c"}]}
    assert catalog.namespace_exists("paged")
    assert not catalog.namespace_exists("nowhere")
    assert catalog.table_exists("paged.a")
    assert not catalog.table_exists("paged.z")


def test_an_answer_that_is_known_is_not_sent_again(lake: Lake, server: Server) -> None:
    table = lake.create_table("known", "id bigint, note string")
    path = "/v1/v3/namespaces/default/tables/known"
    first = server.get(path)
    again = server.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    table.append(ROWS)
    assert server.get(path, headers={"if-none-match": first.headers["etag"]}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/v3/namespaces/default/tables/nothing", 404, "NoSuchTableException"),
        ("/v1/v3/namespaces/nowhere", 404, "NoSuchNamespaceException"),
        ("/v1/v3/namespaces/nowhere/tables", 404, "NoSuchNamespaceException"),
        ("/v1/v3/namespaces/a%1Fb", 404, "NoSuchNamespaceException"),
        ("/v1/v3/namespaces/default/views/nothing", 404, "NoSuchViewException"),
        ("/v1/v9/namespaces", 400, "BadRequestException"),
        ("/v1/config?warehouse=other", 400, "BadRequestException"),
        ("/v1/v3/namespaces?pageSize=x", 400, "BadRequestException"),
    ],
)
def test_errors_have_the_form_of_the_specification(server: Server, path: str, status: int, kind: str) -> None:
    answer = server.get(path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)
    assert error["message"]


def test_a_table_that_cannot_be_shown_says_why_and_is_not_listed(lake: Lake, server: Server) -> None:
    table = lake.create_table("wide.t", "id int, n int", properties={"write.inline.rows": "0"})
    table.append([{"id": 1, "n": 2}])
    assert catalog_of(server).list_tables("wide") == [("wide", "t")]
    table.view.client.alter_columns(table.table_id, widen_column("n", "double"))
    assert catalog_of(server).list_tables("wide") == []
    answer = server.get("/v1/v3/namespaces/wide/tables/t")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("ICEBERG_TYPE")
    assert catalog_of(server).list_tables("wide") == []
    table.refresh()
    table.overwrite([{"id": 1, "n": 2.5}])
    rewritten = server.get("/v1/v3/namespaces/wide/tables/t").json()
    assert [one["snapshot-id"] for one in rewritten["metadata"]["snapshots"]] == [1, 2, 4]
    assert catalog_of(server).list_tables("wide") == [("wide", "t")]


# -- what is given out stays -------------------------------------------------------------------------------------------


def test_shown_versions_are_held(lake: Lake, server: Server) -> None:
    table = lake.create_table("held", "id bigint, note string")
    table.append(ROWS)
    server.get("/v1/v3/namespaces/default/tables/held")
    pins = [one for one in table.view.client.list_pins() if one.table_id == table.table_id]
    held = {one.version for one in pins if one.principal.client == "laketx-iceberg"}
    assert held == {0, 1}


def test_a_killed_server_leaves_whole_files(lake: Lake, folder: Path) -> None:
    table = lake.create_table("killed", "id bigint, note string", properties={"write.inline.rows": "0"})
    for at in range(30):
        table.append([{"id": at, "note": "x"}])
    for _ in range(3):
        with served_folder(folder, "--snapshots", "30") as server:
            asked = threading.Thread(target=lambda: _ask(server))
            asked.start()
            place = Path(table.view.folder) / "_iceberg/rest/metadata"
            while asked.is_alive() and not any(place.glob("data-*.avro")):
                pass
            server.kill()
            asked.join()
        for path in place.glob("[a-z]*-*.avro"):
            assert sha256(path.read_bytes()).hexdigest()[:32] == path.stem.rpartition("-")[2]
    with served_folder(folder) as server:
        assert by_pyiceberg(server, 3, "killed").num_rows == 30


def _ask(server: Server) -> None:
    with suppress(httpx.TransportError):
        server.get("/v1/v3/namespaces/default/tables/killed")


def test_old_generated_files_are_purged(lake: Lake, folder: Path, server: Server) -> None:
    table = lake.create_table("aged", "id bigint, note string")
    table.append(ROWS)
    server.get("/v1/v3/namespaces/default/tables/aged")
    place = Path(table.view.folder) / "_iceberg/rest/metadata"
    files = sorted(place.iterdir())
    for path in files[1:]:
        os.utime(path, (1, 1))
    assert command_line.run(["purge", "run", "--yes"], {"LAKETX_FOLDER": str(folder)}) == 0
    assert sorted(place.iterdir()) == files[:1]


# -- who may listen to it ----------------------------------------------------------------------------------------------


def test_a_token_is_asked_for(lake: Lake, folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    lake.create_table("guarded", "id bigint")
    with served_folder(folder, "--token-file", str(secret)) as server:
        for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "s3cret"}):
            answer = server.get("/v1/v3/namespaces", headers=headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "NotAuthorizedException")
        assert catalog_of(server, token="s3cret").load_table("default.guarded").scan().to_arrow().num_rows == 0


def test_rights_are_those_of_the_caller(tmp_path: Path) -> None:
    deep = urlsafe_b64encode(DEEP).decode().rstrip("=")
    with guarded(tmp_path / "data", "--oidc-issuer", "http://127.0.0.1:1", "--oidc-audience", "laketx") as company:
        address = company.service.address
        company.owner.call("CatalogService/CreateNamespace", name="sales")
        seen, _ = (create(company.owner, f"sales.{name}") for name in ("seen", "hidden"))
        company.grant("user:ana", "reader", table_id=seen)
        words = ["--server", address, "iceberg", "serve", "--listen", "127.0.0.1:0", "--warehouse", str(tmp_path)]
        with served(*words) as server:
            assert server.get("/v1/v3/namespaces").status_code == 401
            for token in ("none", f"{deep}.e30.x", f"e30.{deep}.x"):
                assert server.get("/v1/v3/namespaces", headers={"authorization": f"Bearer {token}"}).status_code == 401
            assert company.service.running().poll() is None
            catalog = catalog_of(server, token=company.token("ana"))
            assert catalog.list_tables("sales") == [("sales", "seen")]
            assert catalog.load_table("sales.seen").scan().to_arrow().num_rows == 0
            assert not catalog.table_exists("sales.hidden")
            assert not catalog_of(server, token=company.token("bo")).table_exists("sales.seen")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "0.0.0.0:0"], "needs TLS"),
        (["--listen", "0.0.0.0:0", "--tls-cert", "c.pem"], "belong together"),
        (["--listen", "nowhere"], "host:port"),
        (["--token-file", "missing"], "can't be read"),
    ],
)
def test_addresses_that_would_expose_the_lake_are_refused(
    lake: Lake, folder: Path, options: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["iceberg", "serve", *options], {"LAKETX_FOLDER": str(folder)}) == 1
    refusal = capfd.readouterr().err
    assert "ICEBERG_LISTEN" in refusal
    assert said in refusal


def test_a_service_that_is_away_is_not_taken_for_one_that_asks_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--listen", "0.0.0.0:0", "--tls-cert", "c.pem", "--tls-key", "c.key", "--warehouse", str(tmp_path)]
    away = {"LAKETX_SERVER": free_address()}
    assert command_line.run(["iceberg", "serve", *words], away) == Exit.UNAVAILABLE
    assert "ICEBERG_LISTEN" not in capfd.readouterr().err
