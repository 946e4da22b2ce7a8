"""Commands given a bucket that can't be used say so in words, with a reason, and soon."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from metaservice.server.process import EXIT_UNUSABLE
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.history import ensure_history
from tests.forked_programs import run_forked
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.service import free_address

BOUND_S: Final = 120.0  # of one command: a silent bucket is given up after some tens of seconds
MISSING: Final = "no-such-bucket"

STORE, BACKUPS = "STORE_UNREACHABLE", "BACKUP_UNREACHABLE"
COMMANDS: Final[Mapping[str, tuple[Sequence[str], str]]] = {  # what is asked, and the reason of the refusal
    "store copy to it": (("store", "copy", "{data}", "s3://{bucket}/lake/meta"), STORE),
    "store copy from it": (("store", "copy", "s3://{bucket}/lake/meta", "{new}"), STORE),
    "check": (("check", "--data", "s3://{bucket}/lake/meta"), STORE),
    "restore": (("restore", "s3://{bucket}/backups", "--data", "{new}"), BACKUPS),
    "backup list": (("backup", "list", "s3://{bucket}/backups"), BACKUPS),
    "backup verify": (("backup", "verify", "s3://{bucket}/backups"), BACKUPS),
    "backup prune": (("backup", "prune", "s3://{bucket}/backups", "--keep", "2"), BACKUPS),
    "backup delete": (("backup", "delete", "s3://{bucket}/backups", "20261121T120000.000000Z-0a0b0c"), BACKUPS),
}
SAID: Final = {  # what is wrong, and a part of what is said
    "silent": "timeout",
    "refused": "Could not connect",
    "wrong key": "SignatureDoesNotMatch",
    "no keys": "Unable to locate credentials",
    "no bucket": "NoSuchBucket",
}


@contextmanager
def silent() -> Iterator[str]:
    """An address where connections are taken, and nothing is answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        taken: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    taken.append(listening.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for one in taken:
                one.close()


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, dict[str, str]]]:
    """The variables with which a process finds each bucket that can't be used."""
    with bucket(tmp_path_factory.mktemp("s3")) as known, silent() as unheard:
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        nobody = Path(known["AWS_ENDPOINT_URL"]).parent / "none"
        yield {
            "silent": known | {"AWS_ENDPOINT_URL": f"http://{unheard}"},
            "refused": known | {"AWS_ENDPOINT_URL": f"http://{free_address()}"},
            "wrong key": known | {"AWS_SECRET_ACCESS_KEY": "another"},
            "no keys": {name: value for name, value in known.items() if name not in keys}
            | {"AWS_SHARED_CREDENTIALS_FILE": str(nobody), "AWS_CONFIG_FILE": str(nobody)},
            "no bucket": known,
        }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder") / "data"
    store = RocksStore(path)
    ensure_history(store, "first")
    store.close()
    return path


@pytest.mark.parametrize(
    "what", [pytest.param("silent", marks=pytest.mark.long), *(one for one in SAID if one != "silent")]
)
def test_what_is_wrong_with_a_bucket_is_said(
    what: str, ways: Mapping[str, dict[str, str]], data: Path, tmp_path: Path
) -> None:
    check_commands(["store copy to it", "backup list"], what, ways, data, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("what", SAID)
def test_every_command_says_what_is_wrong_with_a_bucket(
    what: str, ways: Mapping[str, dict[str, str]], data: Path, tmp_path: Path
) -> None:
    check_commands(list(COMMANDS), what, ways, data, tmp_path)


def check_commands(
    names: Sequence[str], what: str, ways: Mapping[str, dict[str, str]], data: Path, tmp_path: Path
) -> None:
    """Some at a time, as most of it is waiting."""
    named = MISSING if what == "no bucket" else BUCKET

    def run(name: str) -> subprocess.CompletedProcess[str]:
        words = [word.format(bucket=named, data=data, new=tmp_path / name) for word in COMMANDS[name][0]]
        return run_forked("metaservice.cli", *words, env=known_to(ways[what]), timeout=BOUND_S)

    with ThreadPoolExecutor(3) as pool:
        for name, done in zip(names, pool.map(run, names), strict=True):
            last = done.stderr.splitlines()[-1]
            assert done.returncode == EXIT_UNUSABLE, (name, done.stderr)
            assert last.startswith("laketx "), name
            assert COMMANDS[name][1] in last, (name, last)
            assert SAID[what] in last, (name, last)
            assert "STORE_IN_USE" not in done.stderr
    assert list(tmp_path.iterdir()) == []
