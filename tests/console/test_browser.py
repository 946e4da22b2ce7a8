"""The pages in a real browser: by keyboard, live, on a phone, for people who see or hear them in their own way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pyarrow as pa
import pytest

from laketx import connect
from tests.console.browser import Browser
from tests.console.conftest import Owned, Shared
from tests.console.visitor import console

AXE = util.find_spec("axe_core_python")
WIDTHS = ((1360, 900), (390, 844), (320, 568))  # the last one is 640 pixels at 200 % zoom
VIEW = "shop.seen_days"
COLOURS = ("color-contrast", "link-in-text-block")  # all that changes between light and dark
VIOLATIONS = "answer => answer.violations.map(each => `${each.id}: ${each.nodes.slice(0, 3).map(node => node.html)}`)"
REACHABLE = """
window.reached = new Set();
window.unseen = [];
document.addEventListener('focusin', event => {
  reached.add(event.target);
  if (getComputedStyle(event.target).outlineStyle === 'none') unseen.push(event.target.outerHTML.slice(0, 200));
});
const all = document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]');
window.expected = Array.from(all).filter(
  each => each.getAttribute('tabindex') !== '-1' && each.type !== 'hidden' && each.checkVisibility(),
);
document.activeElement.blur();
expected.length
"""
MISSED = "expected.filter(each => !reached.has(each)).map(each => each.outerHTML.slice(0, 200))"
SHIFT = """
new Promise(resolve => {
  let shift = 0;
  new PerformanceObserver(list => list.getEntries().forEach(entry => (shift += entry.value))).observe(
    {type: 'layout-shift', buffered: true},
  );
  setTimeout(() => resolve(shift), 0);
})
"""


@pytest.fixture(scope="module")
def page(owned: Owned, chrome: Browser) -> Iterator[Browser]:
    """The browser of the owner, whose lake has a view, too."""
    with connect(owned.folder) as lake:
        days = lake.create_table("shop.seen_by_day", "id bigint, day string")
        days.append([{"id": 1, "day": "a"}])
        view = lake.create_materialized_view(VIEW, "SELECT day, count(*) AS n FROM shop.seen_by_day GROUP BY day").table
    chrome.forget()
    name, value = owned.owner.session_cookie
    chrome.call("Network.setCookie", name=name, value=value, url=owned.console.url, httpOnly=True, sameSite="Strict")
    yield chrome
    with connect(owned.folder) as lake:
        for table in (view, days):
            lake.client.drop_table(table.table_id)


def paths(owned: Owned) -> list[str]:
    """Every page that the console has."""
    orders = f"/tables/{owned.filled.orders}"
    of_table = [orders + rest for rest in ("", "/timeline", "/files", "/rows", "/versions/13", "/compare?from=0&to=3")]
    races = [
        "/races",
        f"/races/{owned.filled.lost}",
        f"/races/{owned.filled.open}",
        f"/races?table={owned.filled.orders}",
    ]
    branches = ["/branches", "/branches/etl?preview=yes&diff=yes&held=yes"]
    services = ["/services", f"/services?table={owned.filled.orders}"]
    return ["/", "/runbooks", "/tables", *of_table, *races, *branches, "/views", "/consumers", "/retention", *services]


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.long), 3])
def test_every_page_is_for_everybody(owned: Owned, page: Browser, each: int) -> None:
    """It fits each screen, the keyboard reaches all of it, nothing moves; reload, back and forward lead there again."""
    before = ""
    for path in [*paths(owned)[::each], "/"]:
        page.resize(*WIDTHS[0])
        page.open(owned.console.url + path)
        page.wait("!document.querySelector('main [data-pending]')")
        title = page.run("document.title")
        assert page.run(SHIFT) < 0.01, path
        page.press_tabs(page.run(REACHABLE) + 1)
        assert page.run(MISSED) == [], path
        assert page.run("unseen") == [], (path, "what has the focus can be seen")
        for width, height in WIDTHS:
            page.resize(width, height, motion=width != 320)
            wider = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wider <= 0, (path, width)
        page.resize(*WIDTHS[0])
        check_accessible(page)
        page.reload()
        assert page.run("document.title") == title, path
        if before:
            page.run("history.back()")
            page.wait(f"document.readyState === 'complete' && document.title === {before!r}")
            page.run("history.forward()")
            page.wait(f"document.readyState === 'complete' && document.title === {title!r}")
        before = title
    assert page.problems == []
    assert {address.split("/")[2] for address in page.requests} == {owned.console.host}


def check_accessible(page: Browser) -> None:
    """By axe, in light and dark."""
    assert AXE is not None, "axe-core-python is not installed: run make setup"
    assert AXE.submodule_search_locations is not None
    page.run((Path(AXE.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8") + "; 0")
    where = page.run("location.pathname")
    page.resize(*WIDTHS[0])
    assert page.run(f"axe.run().then({VIOLATIONS})") == [], (where, "light")
    page.resize(*WIDTHS[1], dark=True)
    assert page.run(f"axe.run({{runOnly: {list(COLOURS)}}}).then({VIOLATIONS})") == [], (where, "dark")


def test_a_page_that_is_not_there_is_for_everybody_too(owned: Owned, page: Browser) -> None:
    page.open(f"{owned.console.url}/nothing")
    check_accessible(page)
    page.problems.clear()  # a browser says of each 404 that it is one


def test_the_keyboard_alone_opens_a_table(owned: Owned, page: Browser) -> None:
    page.resize(1360, 900)
    page.open(f"{owned.console.url}/tables")
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "Skip to the content"
    page.press("Enter")
    page.wait("document.activeElement.id === 'main'")
    while page.run("document.activeElement.textContent") != "shop.orders":
        page.press("Tab")
    page.press("Enter")
    page.wait("document.querySelector('h1')?.textContent === 'shop.orders'")
    page.run("history.back()")
    page.wait("location.pathname === '/tables'")


def test_the_keyboard_alone_changes_things(owned: Owned, page: Browser) -> None:
    """A view is refreshed and verified; a task is queued and cancelled."""
    page.open(f"{owned.console.url}/views")
    for action, words in (("Refresh", "was up to its sources already"), ("Verify", "has the rows of its query")):
        press(page, f"{action} {VIEW}")
        page.wait(f"document.querySelector('[role=status].done')?.textContent.includes({words!r})")
    page.reload()
    page.wait("document.querySelector('[role=status].done')")
    page.open(f"{owned.console.url}/services?table={owned.filled.orders}")
    page.wait("document.querySelector('#kind')")
    page.run("document.querySelector('#kind').focus()")
    page.press("ArrowDown")
    assert page.run("document.querySelector('#kind').value") == "major"
    page.press("Tab")
    page.press("Enter")
    page.wait("document.querySelector('[role=status].done')?.textContent.includes('Queued')")
    cancel = page.run("document.querySelector('td form button')?.getAttribute('aria-label')")
    press(page, cancel)
    page.wait("document.querySelector('[role=status].done')?.textContent.includes('Cancelled')")
    assert page.problems == []


def press(page: Browser, label: str) -> None:
    """Goes on to a button by its label, and presses it."""
    page.wait(f"document.querySelector('[aria-label=\"{label}\"]')")
    page.run("document.querySelector('#main').focus()")
    while page.run("document.activeElement.getAttribute('aria-label')") != label:
        page.press("Tab")
    page.press("Enter")


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
        page.wait("document.body.textContent.includes('second news')")
    assert page.run("window.kept"), "without loading the page anew"


def test_rows_files_and_tags_are_live(owned: Owned, page: Browser) -> None:
    """The newest rows and files follow each commit; a version shows the tags that it has got."""
    words = {"rows": 'value="{head}"', "files": "versions/{head}", "versions/1": "tag-of-1"}
    with connect(owned.folder) as lake:
        items = lake.table("shop.items")
        for part, word in words.items():
            page.open(f"{owned.console.url}/tables/{items.table_id}/{part}")
            page.wait("document.getElementById('state').textContent === 'Live'")
            page.run("window.kept = true")
            if part == "versions/1":
                items.tag("tag-of-1", version=1)
            head = items.append(pa.table({"id": pa.array([73], pa.int64()), "name": ["new"]})).version
            page.wait(f"document.getElementById('main').innerHTML.includes('{word.format(head=head)}')")
            assert page.run("window.kept"), "without loading the page anew"
        items.drop_tag("tag-of-1")


def test_a_form_that_is_being_filled_in_stays(owned: Owned, page: Browser) -> None:
    page.open(f"{owned.console.url}/tables/{owned.filled.items}/timeline")
    page.wait("document.getElementById('state').textContent === 'Live'")
    page.run("document.getElementById('before').focus(); document.getElementById('before').value = '2'")
    with connect(owned.folder) as lake:
        lake.table("shop.items").append(pa.table({"id": pa.array([72], pa.int64()), "name": ["x"]}), message="later")
    page.wait("document.getElementById('state').textContent.startsWith('Live: changes')")
    assert page.run("document.getElementById('before').value") == "2"


def test_the_page_says_when_its_table_is_dropped(owned: Owned, page: Browser) -> None:
    with connect(owned.folder) as lake:
        table = lake.create_table("shop.short_lived", "id bigint")
        page.open(f"{owned.console.url}/tables/{table.table_id}/timeline")
        page.wait("document.getElementById('state').textContent === 'Live'")
        lake.client.drop_table(table.table_id)
        page.wait("document.getElementById('state').textContent.startsWith('The table was dropped')", 10)
    assert page.run("document.getElementById('state').classList.contains('is-lost')")
    page.problems.clear()


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
    check_accessible(chrome)
    chrome.reload()
    while chrome.run("document.activeElement.id") != "token":
        chrome.press("Tab")
    chrome.call("Input.insertText", text=shared.reader_token)
    chrome.press("Enter")
    chrome.wait("location.pathname === '/tables' && document.body.textContent.includes('shop.open')")
    assert chrome.run("document.cookie") == "", "no script can read the cookie"
    chrome.run("document.querySelector('.log-out button').focus()")
    chrome.press("Enter")
    chrome.wait("location.pathname === '/login'")
