"""Every route of the console, from its table: a new one is in these tests by itself."""

from __future__ import annotations

import re
from typing import NoReturn

import httpx
import pytest
from starlette.routing import Route

from metaservice.client import MetaClient
from tests.console.conftest import Owned, Shared
from tests.console.visitor import Visitor
from worker.console.app import Console
from worker.console.entrance import Access
from worker.console.live import LiveEvents
from worker.console.provider import Provider, ProviderSettings
from worker.console.provider_login import ProviderLogin
from worker.console.sessions import OwnerKey, Sessions
from worker.web.callers import Callers

SAMPLES = {"name": "etl", "version": "5"}  # of what a path names; else the id of a table
OPEN = {"/login", "/open", "/health", "/login/provider", "/login/callback"}  # to everybody


def connect(_token: str) -> MetaClient:
    return never()


def never() -> NoReturn:
    raise AssertionError("a table of routes asks nobody")


def list_routes() -> list[tuple[str, str]]:
    """Method and path of all routes, also of those that a console has only with a provider."""
    sessions = Sessions(lambda: 0.0, "console", is_secure=False)
    callers = Callers(connect, "", now_s=lambda: 0.0)
    login = ProviderLogin(Provider(ProviderSettings("https://i", "c")), sessions, lambda: 0.0)
    access = Access(sessions, callers, OwnerKey(), "", provider=login)
    routes = [each for each in Console(access, LiveEvents(connect, callers)).routes() if isinstance(each, Route)]
    return [(method, each.path) for each in routes for method in sorted(each.methods or ()) if method != "HEAD"]


ROUTES = list_routes()
CHANGING = [path for method, path in ROUTES if method == "POST" and path != "/login"]
SHOWN = [path for method, path in ROUTES if method == "GET"]


def filled(path: str, owned: Owned) -> str:
    return re.sub(r"{(\w+)}", lambda match: SAMPLES.get(match[1], owned.filled.orders), path)


def test_there_are_routes_that_change_something_and_their_methods_say_so() -> None:
    assert {"/logout", "/branches/{name}/merge", "/tables/{table_id}/versions/{version}/restore"} <= set(CHANGING)
    assert {method for method, _ in ROUTES} == {"GET", "POST"}


def state_of(owner: Visitor, owned: Owned) -> tuple[str, ...]:
    """What the forms below would change: branches, tables, tags and versions, tasks."""
    orders = owned.filled.orders
    pages = ("/branches", "/tables", f"/tables/{orders}", f"/tables/{orders}/timeline", f"/services?table={orders}")
    shown = tuple(re.sub(r"\d+(\.\d+)? (ms|s|minutes?|hours?)\b", "", owner.read(page)) for page in pages)
    assert not any("planted" in page for page in shown)
    return tuple(str("etl" in page) for page in shown)


@pytest.mark.parametrize("route", CHANGING)
def test_nothing_changes_without_the_token_of_a_form_of_this_session(owned: Owned, shared: Shared, route: str) -> None:
    path, before = filled(route, owned), state_of(owned.owner, owned)
    fields = {"confirm": "etl", "kind": "major", "name": "planted", "tables": "*", "schedule": "on commit"}
    linked = owned.owner.get(f"{path}?confirm=etl&name=planted&kind=major&form_token={owned.owner.form_token('/')}")
    assert linked.status_code in (404, 405) or route in SHOWN, "a link changes nothing"
    token = owned.owner.form_token("/")
    other = shared.reader.form_token("/")
    for wrong in ({}, {"form_token": ""}, {"form_token": "0" * 64}, {"form_token": other}, {"form_token": token + "0"}):
        assert (wrong, owned.owner.post(path, {**fields, **wrong}).status_code) == (wrong, 403)
    for origin in ("https://evil.example", "null", f"http://evil.{owned.console.host}", "http://localhost:1"):
        answer = owned.owner.post(path, {**fields, "form_token": token}, headers={"origin": origin})
        assert (origin, answer.status_code) == (origin, 403)
    large = owned.owner.post(path, {**fields, "form_token": token, "more": "x" * 100_000})
    assert large.status_code == 403
    stranger = owned.console.visitor()
    assert stranger.post(path, {**fields, "form_token": token}).status_code in (401, 403)
    assert state_of(owned.owner, owned) == before
    assert owned.owner.get("/").status_code == 200, "nobody was logged out"


@pytest.mark.parametrize("route", sorted(set(SHOWN) - OPEN))
def test_no_page_is_there_for_strangers(owned: Owned, route: str) -> None:
    answer = httpx.get(owned.console.url + filled(route, owned))
    assert (answer.status_code, answer.text[:40]) in ((303, ""), (401, "Log in first.\n"))
    assert answer.headers.get("location", "/login").startswith("/login")


@pytest.mark.parametrize("route", sorted({path for _, path in ROUTES}))
def test_no_answer_can_be_framed_kept_or_taken_for_code(owned: Owned, route: str) -> None:
    path = filled(route, owned)
    stranger = owned.console.visitor()
    answers = [stranger.get(path), stranger.post(path, {}), stranger.http.request("DELETE", path)]
    if not route.startswith("/live"):  # it doesn't end
        answers.append(owned.owner.get(path))
    for answer in answers:
        assert answer.status_code < 500, answer.text
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
