"""What operators do with a repository of backups, and see of it; patient, as busy machines are slow."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable

import grpc
import pytest

from metaservice.client import MetaClient
from protos.laketx.v1 import admin_pb2
from tests.forked_programs import run_forked
from tests.integration.service import TIMEOUT_S, Service, reason_of

PATIENCE_S = 4 * TIMEOUT_S


def laketx(*words: str, code: int = 0) -> str:
    run = run_forked("metaservice.cli", *words, timeout=PATIENCE_S)
    assert run.returncode == code, f"{words}: {run.stdout}{run.stderr}"
    return run.stdout + run.stderr if code else run.stdout


def offline(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command that needs no running service, such as `restore`."""
    return run_forked("metaservice", *arguments, env=environment, timeout=PATIENCE_S)


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """With which code and reason."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: object = caught.value
    assert isinstance(error, grpc.Call)
    return error.code(), reason_of(caught.value)


def listed(repository: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in laketx("backup", "list", repository, "-o", "json").splitlines()]


def wait_until(is_so: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def backup_status(running: Service) -> admin_pb2.BackupStatus:
    with MetaClient(running.address, retry_budget_s=PATIENCE_S) as client:
        return client.get_status().backup


def leads(running: Service) -> bool:
    with MetaClient(running.address, retry_budget_s=PATIENCE_S) as client:
        return client.get_status().role in ("", "leader")


def scrape(address: str) -> dict[str, float]:
    """The samples of a service."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
