"""Attacks on the console, each refused: other sites, stolen and planted cookies, forms, and texts that are code."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest

from laketx import connect
from metaservice.cli import command_line
from protos.laketx.v1 import common_pb2, read_pb2, transaction_pb2
from tests.console.conftest import Owned, Shared
from tests.console.visitor import FORM_TOKEN, Console, console
from tests.integration.certificates import Authority

CODE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
EVIL = f"{CODE}\u202eexe.fdp\u2066"
ELSEWHERE = (
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "javascript:alert(evil)",
    "\\\\evil",
    "/\t/evil",
)

# -- the way in


def test_nobody_sees_a_page_without_a_session(owned: Owned) -> None:
    stranger = owned.console.visitor()
    for path in ("/", "/tables", f"/tables/{owned.filled.orders}", "/races", "/nothing"):
        answer = stranger.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")
        assert answer.text == ""
    assert stranger.get(f"/live/tables/{owned.filled.orders}").status_code == 401
    assert owned.owner.get("/live/tables/nothing").status_code == 404
    assert stranger.post("/branches/etl/merge", {"confirm": "etl"}).status_code == 401


def test_the_printed_address_opens_one_session(owned: Owned) -> None:
    with_old = owned.console.visitor().open(owned.console.address)
    assert with_old.status_code == 403
    assert "was used already" in with_old.text
    assert owned.console.visitor().open(f"{owned.console.url}/open?key=").status_code == 403


def test_a_cookie_is_of_this_site_alone_and_no_script_reads_it(owned: Owned, shared: Shared) -> None:
    answer = shared.console.visitor().http.get("/login")
    cookie = answer.headers["set-cookie"]
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert "Domain" not in cookie
    port = owned.console.host.rpartition(":")[2]
    assert owned.owner.session_cookie[0] == f"laketx_console_{port}"


def test_a_cookie_that_somebody_made_is_no_session(owned: Owned) -> None:
    name, value = owned.owner.session_cookie
    session_id, _, signature = value.partition(".")
    for forged in ("", "x", f"{session_id}.", f"{session_id}.{'0' * 64}", f"x{value}", f".{signature}", f"{value}0"):
        answer = httpx.get(f"{owned.console.url}/", headers={"cookie": f"{name}={forged}"})
        assert (forged, answer.status_code) == (forged, 303)


def test_a_session_has_a_new_id_after_the_login(shared: Shared) -> None:
    visitor = shared.console.visitor()
    visitor.get("/login")
    before = visitor.http.cookies[next(iter(visitor.http.cookies))]
    assert visitor.log_in(shared.reader_token).status_code == 200
    _, after = visitor.session_cookie
    assert after.partition(".")[0] != before.partition(".")[0]
    name, _ = visitor.session_cookie
    planted = httpx.get(f"{shared.console.url}/", headers={"cookie": f"{name}={before}"})
    assert planted.status_code == 303, "an id from before the login opens nothing"
    assert shared.reader_token not in visitor.page("/")


def test_a_wrong_token_opens_nothing(shared: Shared) -> None:
    for token in ("wrong", "", "x" * 9_000, "\u00e9", "a\r\nb"):
        visitor = shared.console.visitor()
        assert visitor.log_in(token).status_code == 403, token
        assert visitor.get("/").status_code == 303


def test_a_login_goes_on_within_the_console_alone(shared: Shared) -> None:
    for target in (
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "\\\\evil",
        "/\t/evil",
    ):
        answer = shared.console.visitor().log_in(shared.reader_token, target)
        assert answer.status_code == 200
        assert "evil" not in answer.text, target
        assert 'content="0;url=/"' in answer.text
    kept = shared.console.visitor().log_in(shared.reader_token, "/tables?q=a")
    assert 'content="0;url=/tables?q=a"' in kept.text


def test_a_login_needs_the_token_of_its_form(shared: Shared) -> None:
    visitor = shared.console.visitor()
    visitor.get("/login")
    assert visitor.post("/login", {"token": shared.reader_token, "next": "/"}).status_code == 403
    assert visitor.get("/").status_code == 303


def test_a_session_ends_with_the_logout(shared: Shared) -> None:
    visitor = shared.console.visitor()
    visitor.log_in(shared.reader_token)
    name, value = visitor.session_cookie
    answer = visitor.post("/logout", {"form_token": visitor.form_token("/")})
    assert answer.status_code == 303
    again = httpx.get(f"{shared.console.url}/", headers={"cookie": f"{name}={value}"})
    assert again.status_code == 303, "a copy of the cookie opens nothing"


def test_a_revoked_token_ends_its_session(shared: Shared) -> None:
    made = shared.service.owner.call("AccessService/CreateToken", principal="rea")
    visitor = shared.console.visitor()
    visitor.log_in(str(made.secret))
    assert visitor.get("/").status_code == 200
    shared.service.owner.call("AccessService/RevokeToken", token_id=made.token.token_id)
    assert visitor.get("/").status_code == 303


# -- other sites


def test_another_host_is_refused(owned: Owned) -> None:
    for host in ("evil.example", "127.0.0.1", "localhost:1", f"evil.example:{owned.console.host.rpartition(':')[2]}"):
        answer = owned.owner.get("/", host=host)
        assert (host, answer.status_code) == (host, 421)
        assert "shop" not in answer.text
    local = owned.console.host.replace("127.0.0.1", "localhost")
    assert owned.owner.get("/", host=local).status_code == 200


def test_no_page_can_be_framed_or_run_foreign_code(owned: Owned) -> None:
    for path in ("/", "/login", "/nothing", "/static/console.css", "/health", f"/tables/{owned.filled.orders}/rows"):
        headers = owned.owner.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert ("no-store" in headers["cache-control"]) == (not path.startswith("/static/"))


def test_pages_have_no_code_of_their_own_and_name_no_other_host(owned: Owned) -> None:
    for path in pages_of(owned):
        page = owned.owner.page(path)
        assert re.findall(r"<script(?! defer src=\"/static/)|<style|\sstyle=|\son[a-z]+=|javascript:", page) == [], path
        assert re.findall(r"(?:src|href|action)=\"(?!/|#)", page) == [], path


def pages_of(owned: Owned) -> list[str]:
    orders = f"/tables/{owned.filled.orders}"
    of_table = [orders + rest for rest in ("", "/files", "/rows", "/timeline", "/versions/13", "/compare?from=0&to=3")]
    others = [
        "/",
        "/tables",
        "/races",
        f"/races/{owned.filled.lost}",
        "/branches",
        "/branches/etl",
        "/views",
        "/retention",
    ]
    return [*of_table, *others, "/services", f"/services?table={owned.filled.orders}"]


# -- forms


def test_the_form_token_of_another_session_is_refused(shared: Shared) -> None:
    other = shared.console.visitor()
    other.log_in(shared.reader_token)
    token = shared.reader.form_token("/")
    assert other.post("/logout", {"form_token": token}).status_code == 403
    assert other.get("/").status_code == 200


def test_a_merge_has_to_be_confirmed(owned: Owned) -> None:
    fields = {"form_token": owned.owner.form_token("/"), "confirm": "something else"}
    assert owned.owner.post("/branches/etl/merge", fields).status_code == 400
    assert owned.owner.get("/branches/etl").status_code == 200


# -- rights


def test_a_reader_learns_nothing_of_a_table_that_is_hidden(shared: Shared) -> None:
    reader, hidden = shared.reader, shared.hidden
    assert "shop.open" in reader.page("/tables")
    paths = [
        "/",
        "/tables",
        "/tables?q=salar",
        "/races",
        "/branches",
        "/views",
        "/retention",
        "/services",
        "/tables?namespace=shop",
    ]
    for path in paths:
        page = reader.page(path)
        assert shared.hidden_name not in page, path
        assert hidden not in page, path
    parts = ("", "/files", "/rows", "/timeline", "/versions/1", "/compare?from=0&to=1")
    for path in (*(f"/tables/{hidden}{part}" for part in parts), f"/races?table={hidden}", f"/services?table={hidden}"):
        answer = reader.get(path)
        assert (path, answer.status_code) == (path, 404)
        assert shared.hidden_name not in answer.text
    missing = reader.get(f"/tables/{'0' * 8}-0000-0000-0000-{'0' * 12}")
    there = reader.get(f"/tables/{hidden}")
    assert without_session(missing) == without_session(there), "what is hidden is as what is not there"


def without_session(answer: httpx.Response) -> str:
    return FORM_TOKEN.sub("", answer.text)


def test_what_needs_rights_is_refused_without_them(shared: Shared) -> None:
    fields = {"form_token": shared.reader.form_token("/"), "kind": "major", "name": "mine"}
    for what in ("tags", "restore", "clone"):
        wrong = fields | {"confirm": "shop.open", "name": "shop.mine"}
        assert shared.reader.post(f"/tables/{shared.seen}/versions/1/{what}", wrong).status_code == 403
        assert shared.reader.post(f"/tables/{shared.hidden}/versions/1/{what}", wrong).status_code == 404
    assert shared.reader.post("/branches", fields).status_code == 403
    answer = shared.reader.post(f"/tables/{shared.seen}/tasks", fields)
    assert answer.status_code == 403
    assert "ask for the rights" in answer.text
    assert shared.reader.post(f"/tables/{shared.hidden}/tasks", fields).status_code == 404
    maintainer = shared.console.visitor()
    shared.service.grant("user:mia", "maintainer", table_id=shared.seen)
    maintainer.log_in(shared.service.token("mia"))
    fields = {"form_token": maintainer.form_token("/"), "kind": "major"}
    assert maintainer.post(f"/tables/{shared.seen}/tasks", fields).status_code == 303
    (cancel,) = re.findall(r'action="(/tasks/[0-9a-f-]+/cancel)"', maintainer.page("/services"))
    assert shared.reader.post(cancel, fields | {"form_token": shared.reader.form_token("/")}).status_code == 403
    assert maintainer.post(cancel, fields).status_code == 303
    assert "No task waits or runs." in maintainer.read("/services")


def test_rows_need_a_warehouse(shared: Shared) -> None:
    text = shared.reader.read(f"/tables/{shared.seen}/rows")
    assert "started without --warehouse" in text


# -- texts


def test_names_and_messages_are_text(owned: Owned) -> None:
    """Also those of people, partitions and branches, and long ones."""
    long = "x" * 3_900  # a message has at most 4,096 characters
    with connect(owned.folder, user=CODE) as lake:
        columns = pa.schema({CODE: pa.string(), "part": pa.string()})
        named = lake.create_table("shop.evil", columns, partition_by=["part"], comment=f"{EVIL} {long}")
        rows = pa.table({CODE: [EVIL, long * 3], "part": [EVIL, long[:200]]})
        named.append(rows, message=f"{EVIL}\n{long}")
        lake.client.create_tag(named.table_id, "t", comment=EVIL)
        lake.branch("evil", comment=EVIL)
        intent = transaction_pb2.TableIntent(table_id=named.table_id, operation=common_pb2.OPERATION_INSERT)
        waiting = lake.client.begin([intent], commit_message=EVIL)
        pin = lake.client.pin([read_pb2.TableVersion(table_id=named.table_id, version=1)])
        table_id = named.table_id
    of_table = ("", "/files", "/rows", "/timeline", "/versions/1", "/compare?from=0&to=1")
    pages = [f"/tables/{table_id}{path}" for path in of_table]
    pages += [
        "/",
        "/tables",
        "/races",
        f"/races?table={table_id}",
        "/branches",
        "/branches/evil",
        "/retention",
        "/services",
    ]
    for path in pages:
        page = owned.owner.page(path)
        assert "<script>alert" not in page, path
        assert "<img" not in page, path
        assert "\u202e" not in page, path
        assert "\u2066" not in page, path
    page = owned.owner.page(f"/tables/{table_id}/timeline")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\\u202eexe.fdp" in page
    assert "&lt;img src=x" in owned.owner.page("/tables")
    for path in (
        "/tables?q=",
        "/tables?namespace=",
        "/services?notice=",
        "/login?next=/",
        "/branches/",
        "/races?table=",
    ):
        answer = owned.owner.get(path + quote(EVIL))
        assert "<script>alert" not in answer.text, path
        assert "<img" not in answer.text, path
    with connect(owned.folder, user=CODE) as lake:  # other tests look at this lake
        lake.client.unpin(pin.pin_id)
        lake.client.abort(waiting.txn_id)
        lake.client.drop_branch("evil")


def test_a_console_refuses_to_be_open_to_the_network(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = command_line.run(["--folder", f"{tmp_path}/lake", "console", "--listen", "0.0.0.0:0"], {})
    assert code != 0
    assert "CONSOLE_LISTEN" in capfd.readouterr().err


def test_static_files_are_those_of_the_package(owned: Owned) -> None:
    stranger: Console = owned.console
    assert stranger.visitor().get("/static/console.js").status_code == 200
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/static//etc/passwd"):
        answer = httpx.get(stranger.url + path)
        assert answer.status_code in (303, 404), path
        assert "import" not in answer.text


def test_a_link_to_the_login_ends_no_session(shared: Shared) -> None:
    visitor = shared.console.visitor()
    visitor.log_in(shared.reader_token)
    assert visitor.get("/login?next=/tables").headers["location"] == "/tables"
    strange = httpx.get(f"{shared.console.url}/login")
    assert "_form=" in strange.headers["set-cookie"]
    assert visitor.get("/").status_code == 200


def test_with_tls_the_cookie_is_bound_to_the_host(owned: Owned, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("console")
    trusted = ssl.create_default_context(cafile=str(authority.file))
    with console("--folder", str(owned.folder), options=pair.flags) as served:
        assert served.url.startswith("https://")
        cookie = httpx.get(served.address, verify=trusted).headers["set-cookie"]
    assert cookie.startswith("__Host-laketx_console")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
