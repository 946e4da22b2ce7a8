"""A console in a process of its own, and somebody who visits it without a browser."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import httpx

STOP_S: Final = 30
ANSWER_S: Final = 60
TAGS: Final = re.compile(r"<[^>]*>")
FORM_TOKEN: Final = re.compile(r'name="form_token" value="([0-9a-f]+)"')


class Console:
    """A process that serves the console."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address  # as it was printed first
        self.url = address.partition("/open")[0].rstrip("/")

    @property
    def host(self) -> str:
        return self.url.partition("//")[2]

    def next_address(self) -> str:
        """The address that is printed after the one before was used."""
        return address_in(self.process)

    def visitor(self) -> Visitor:
        return Visitor(self)


def address_in(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if "ready at" in line:
            return line.split()[-1]
    raise AssertionError("the console ended before it was ready")


@contextmanager
def console(
    *words: str, environment: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> Iterator[Console]:
    """`laketx … console` on a free port."""
    command = [sys.executable, "-m", "metaservice.cli", *words, "console", "--listen", "127.0.0.1:0", *options]
    known = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=known) as process:
        try:
            yield Console(process, address_in(process))
        finally:
            process.terminate()
            process.wait(STOP_S)


class Visitor:
    """A browser without a screen: it keeps cookies, and follows nothing by itself."""

    def __init__(self, console: Console, *, verify: bool = True) -> None:
        self.console = console
        self.http = httpx.Client(base_url=console.url, timeout=ANSWER_S, verify=verify)

    def open(self, address: str) -> httpx.Response:
        return self.http.get(address)

    def get(self, path: str, **options: str) -> httpx.Response:
        return self.http.get(path, headers=options or None)

    def page(self, path: str) -> str:
        """The page as HTML, once all of its figures are there; it has to be there."""
        answer = self.get(path)
        until_s = time.monotonic() + ANSWER_S
        while "data-pending" in answer.text and time.monotonic() < until_s:
            time.sleep(0.05)
            answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[-400:])
        return answer.text

    def read(self, path: str) -> str:
        """The text of a page, as people read it."""
        return text_of(self.page(path))

    def form_token(self, path: str) -> str:
        match = FORM_TOKEN.search(self.page(path))
        assert match is not None, path
        return match[1]

    def post(self, path: str, fields: Mapping[str, str], *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.http.post(path, data=dict(fields), headers=dict(headers or {}))

    def log_in(self, token: str, target: str = "/") -> httpx.Response:
        form = self.http.get("/login", params={"next": target})
        match = FORM_TOKEN.search(form.text)
        assert match is not None, form.text
        return self.post("/login", {"token": token, "next": target, "form_token": match[1]})

    @property
    def session_cookie(self) -> tuple[str, str]:
        """Its name and value; the login form has another one."""
        return next((name, value) for name, value in self.http.cookies.items() if not name.endswith("_form"))

    def close(self) -> None:
        self.http.close()


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(TAGS.sub(" ", page)))
