"""A headless Chromium, driven by the DevTools protocol over pipes: pages as a person has them, and what goes wrong."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
ANSWER_S: Final = 30.0
TOLD: Final = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Network.requestWillBeSent")


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


class Browser:
    """One page of a browser. `requests` are the addresses that it asked for, `problems` what its console shows."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._buffer, self._session = 0, b"", ""
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer of a method of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        until_s = time.monotonic() + ANSWER_S
        while time.monotonic() < until_s:
            answer = self._next(until_s)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result
        raise TimeoutError(method)

    def _next(self, until_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(until_s - time.monotonic(), 0))
            if not ready:
                raise TimeoutError("the browser does not answer")
            self._buffer += os.read(self._answers, 1 << 20)
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        kind, facts = message.get("method"), message.get("params", {})
        match kind:
            case "Network.requestWillBeSent":
                self.requests.append(facts["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(str(facts["exceptionDetails"]))
            case "Log.entryAdded" if facts["entry"]["level"] == "error":
                self.problems.append(f"{facts['entry']['text']} {facts['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if facts["type"] in ("error", "warning", "assert"):
                self.problems.append(str(facts["args"]))

    def run(self, script: str) -> Any:
        """The value of an expression in the page; of a promise, what it becomes."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        """Goes to an address, and waits until the page is there."""
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href !== 'about:blank' && {json.dumps(url)}.length")

    def wait(self, condition: str, most_s: float = ANSWER_S) -> float:
        """How long it took until a condition was true in the page, which may be on its way to another one."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < most_s:
            if self.run(f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"):
                return time.monotonic() - began_s
            time.sleep(0.02)
        raise TimeoutError(f"{condition}: {self.run('document.body.innerText')[:500]}")

    def reload(self) -> None:
        """Loads the page anew, and waits until it is there."""
        self.run("window.isBefore = true")
        self.call("Page.reload")
        self.wait("document.readyState === 'complete' && !window.isBefore")

    def forget(self) -> None:
        """As a browser that was never here: no cookies, and nothing noted."""
        self.call("Network.clearBrowserCookies")
        self.requests.clear()
        self.problems.clear()

    def press_tabs(self, count: int) -> None:
        """Moves the focus on so often, without an answer in between."""
        for _ in range(count):
            self.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)

    def resize(self, width: int, height: int, *, dark: bool = False, motion: bool = True, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


KEYS: Final = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}


@contextmanager
def browser(chromium: str, profile: Path, flags: Sequence[str] = ()) -> Iterator[Browser]:
    """A browser with a new profile; it ends with the block."""
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    words = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
        *flags,
    ]
    script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", *words],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Browser(commands, answers)
    finally:
        process.terminate()
        process.wait(ANSWER_S)
        os.close(commands)
        os.close(answers)
