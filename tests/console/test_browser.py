"""The pages in a real browser: by keyboard, live, on a phone, for people who see or hear them in their own way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pyarrow as pa
import pytest

from laketx import connect
from tests.console.browser import Browser, browser, find_chromium
from tests.console.conftest import Owned, Shared
from tests.console.visitor import console

CHROMIUM = find_chromium()
AXE = util.find_spec("axe_core_python")
WIDTHS = ((1360, 900), (390, 844), (320, 568))  # the last one is 640 pixels at 200 % zoom
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; Debian: apt-get install chromium")


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browser(CHROMIUM, tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(owned: Owned, chrome: Browser) -> Browser:
    """A browser of the owner."""
    name, value = owned.owner.session_cookie
    chrome.call("Network.setCookie", name=name, value=value, url=owned.console.url, httpOnly=True, sameSite="Strict")
    return chrome


def paths(owned: Owned) -> list[str]:
    orders = f"/tables/{owned.filled.orders}"
    of_table = [orders + rest for rest in ("", "/timeline", "/files", "/rows", "/versions/13", "/compare?from=0&to=3")]
    others = ["/", "/tables", "/races", f"/races/{owned.filled.lost}", "/branches", "/branches/etl?preview=yes"]
    return [*of_table, *others, "/consumers", "/retention", f"/services?table={owned.filled.orders}"]


def test_every_page_fits_every_screen_and_asks_nobody_else(owned: Owned, page: Browser) -> None:
    page.requests.clear()
    page.problems.clear()
    for path in paths(owned):
        page.open(owned.console.url + path)
        for width, height in WIDTHS:
            page.resize(width, height, dark=width == 390, motion=width != 320)
            wider = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wider <= 0, (path, width)
    assert page.problems == []
    assert {address.split("/")[2] for address in page.requests} == {owned.console.host}


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed: run make setup")
def test_axe_finds_nothing(owned: Owned, page: Browser) -> None:
    assert AXE is not None
    assert AXE.submodule_search_locations is not None
    script = (Path(AXE.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    page.resize(1360, 900)
    for path in [*paths(owned), "/nothing"]:
        page.open(owned.console.url + path)
        page.run(script + "; 0")
        for dark in (False, True):
            page.resize(1360, 900, dark=dark)
            found = page.run(
                "axe.run().then(answer => answer.violations.map(each => "
                "each.id + ': ' + each.nodes.slice(0, 3).map(node => node.html).join(' | ')))"
            )
            assert found == [], (path, "dark" if dark else "light")


def test_the_keyboard_reaches_everything(owned: Owned, page: Browser) -> None:
    page.resize(1360, 900)
    page.open(f"{owned.console.url}/tables")
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "Skip to the content"
    page.press("Enter")
    page.wait("document.activeElement.id === 'main'")
    reached = []
    for _ in range(14):
        page.press("Tab")
        reached.append(page.run("document.activeElement.id || document.activeElement.textContent"))
    assert [each for each in ("q", "shop", "shop.orders") if each not in reached] == []
    shown = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert shown == "solid", "what has the focus can be seen"
    while page.run("document.activeElement.textContent") != "shop.orders":
        page.press("Tab")
    page.press("Enter")
    page.wait("document.querySelector('h1')?.textContent === 'shop.orders'")
    page.call("Page.reload")
    page.wait("document.readyState === 'complete' && document.querySelector('h1')?.textContent === 'shop.orders'")
    page.run("history.back()")
    page.wait("location.pathname === '/tables'")


def test_a_commit_is_shown_within_a_second(owned: Owned, page: Browser) -> None:
    page.open(f"{owned.console.url}/tables/{owned.filled.items}/timeline")
    page.wait("document.getElementById('state').textContent === 'Live'")
    page.run("window.kept = true")
    with connect(owned.folder) as lake:
        items = lake.table("shop.items")
        items.append(pa.table({"id": pa.array([70], pa.int64()), "name": ["live"]}), message="first news")
        page.wait("document.body.textContent.includes('first news')")
        time.sleep(1)
        items.append(pa.table({"id": pa.array([71], pa.int64()), "name": ["live"]}), message="second news")
        took_s = page.wait("document.body.textContent.includes('second news')")
    assert took_s < 1
    assert page.run("window.kept"), "without loading the page anew"


def test_a_form_that_is_being_filled_in_stays(owned: Owned, page: Browser) -> None:
    page.open(f"{owned.console.url}/tables/{owned.filled.items}/timeline")
    page.wait("document.getElementById('state').textContent === 'Live'")
    page.run("document.getElementById('before').focus(); document.getElementById('before').value = '2'")
    with connect(owned.folder) as lake:
        lake.table("shop.items").append(pa.table({"id": pa.array([72], pa.int64()), "name": ["x"]}), message="later")
    page.wait("document.getElementById('state').textContent.startsWith('Live: changes')")
    assert page.run("document.getElementById('before').value") == "2"


def test_the_page_says_when_it_is_not_connected(owned: Owned, chrome: Browser) -> None:
    with console("--folder", str(owned.folder)) as other:
        chrome.open(other.address)
        chrome.wait("location.pathname === '/'")
        chrome.wait("document.getElementById('state').textContent === 'Live'")
    chrome.wait("document.getElementById('state').textContent.startsWith('Not connected')", 10)
    assert chrome.run("document.getElementById('state').classList.contains('is-lost')")


def test_a_token_logs_in_and_out_by_keyboard(shared: Shared, chrome: Browser) -> None:
    chrome.open(f"{shared.console.url}/tables")
    chrome.wait("location.pathname === '/login'")
    while chrome.run("document.activeElement.id") != "token":
        chrome.press("Tab")
    chrome.call("Input.insertText", text=shared.reader_token)
    chrome.press("Enter")
    chrome.wait("location.pathname === '/tables' && document.body.textContent.includes('shop.open')")
    assert chrome.run("document.cookie") == "", "no script can read the cookie"
    chrome.run("document.querySelector('.log-out button').focus()")
    chrome.press("Enter")
    chrome.wait("location.pathname === '/login'")
