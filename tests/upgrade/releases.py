"""The release before this one, out of git: its service and its clients run beside the present ones.

It runs with this environment's libraries, from a folder of its own that stands first on the path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.server import ROOT
from tests.integration.service import TIMEOUT_S, Service

HERE = Path(__file__).parent
NAMED = HERE / "release_before"
PACKAGES = ("metaservice", "protos", "worker", "laketx")
COMMANDS = {  # modules of commands that this environment names, and what the release before has in their place
    "laketx/commands": "from worker.commands import COMMANDS\n\n__all__ = ['COMMANDS']\n",
    "worker/iceberg": "COMMANDS = ()\n",
}
STOP_S = 60.0
WITHOUT_FEATURES = "6464645"  # the last build that knows no feature: refusals of older clients are tried with it


class UnknownReleaseError(Exception):
    """The clone does not have the release."""


def release_before() -> str:
    lines = NAMED.read_text(encoding="utf-8").splitlines()
    (name,) = [line for line in lines if line and not line.startswith("#")]
    return os.environ.get("LAKETX_TEST_RELEASE_BEFORE", name)


@dataclass(frozen=True)
class Release:
    """A release in a folder."""

    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder)}

    def service(self, data: Path, listen: str = "127.0.0.1:0", *flags: str) -> ReleasedService:
        return ReleasedService(self, data, *flags, listen=listen)

    def popen(self, script: str, *words: str) -> subprocess.Popen[str]:
        """A script of this folder that uses the release's packages; it is told where they must come from."""
        command = [sys.executable, str(HERE / script), str(self.folder), *words]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, script: str, *words: str) -> str:
        """What the script prints."""
        return finish(self.popen(script, *words))

    def laketx(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "metaservice.cli", *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


class ReleasedService(Service):
    """A service of a release."""

    def __init__(self, release: Release, folder: Path, *flags: str, listen: str) -> None:
        super().__init__(folder, *flags, listen=listen)
        self.release = release

    def spawn(self, listen: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "metaservice", "--listen", listen, "--data", str(self.folder), *self.flags]
        with self.errors.open("ab") as stderr:
            return subprocess.Popen(
                command, cwd=self.release.folder, env=self.release.environment,
                stdout=subprocess.PIPE, stderr=stderr, text=True,
            )  # fmt: skip

    def stop(self) -> None:
        process = self.running()
        process.terminate()
        assert process.wait(STOP_S) == 0, self.said()

    def become(self, release: Release) -> None:
        """Stops, and starts again on the same folder and address as another release."""
        self.stop()
        self.release = release
        self.start()


def finish(process: subprocess.Popen[str]) -> str:
    try:
        out, errors = process.communicate(timeout=STOP_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-4000:]
    return out


NOW = Release("now", ROOT)


def unpack(name: str, folder: Path) -> Release:
    """The packages of a release. Raises UnknownReleaseError if the clone lacks it, or is no clone."""
    archive = folder / "release.tar"
    command = ["git", "-C", str(ROOT), "archive", "--output", str(archive), name, *PACKAGES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise UnknownReleaseError("git is not installed") from error
    if done.returncode:
        raise UnknownReleaseError(done.stderr.strip())
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    for package, text in COMMANDS.items():
        if not (folder / package).exists():
            (folder / package).mkdir()
            (folder / package / "__init__.py").touch()
            (folder / package / "declarations.py").write_text(text, encoding="utf-8")
    return Release(name, folder)
