"""`make deploy-check`: looks at all of deploy/ with the programs that will read it, and says what it can't check here.

It ends with 1 if something is wrong; what can't be checked, because a container engine, a program or the network is
missing, is no failure, unless `--require` is given.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tools import audit, deploy_tools
from tools.deploy_tools import GO, NotCheckedError, go_tool, last_lines, python_tool, read_yaml, run
from tools.lock import LOCKS
from tools.wire import ROOT

DEPLOY: Final = ROOT / "deploy"
CONTAINER_FILE: Final = DEPLOY / "image" / "Dockerfile"
COMPOSE_FILE: Final = DEPLOY / "compose" / "compose.yaml"
COMPOSE_PAIR: Final = DEPLOY / "compose" / "high-availability.yaml"  # beside it
CHART: Final = DEPLOY / "helm" / "laketx"
UNITS: Final = DEPLOY / "systemd"
ALERTS: Final = DEPLOY / "prometheus" / "laketx-alerts.yml"
ALERTS_PLAYED: Final = ROOT / "tests" / "deploy" / "alerts.yml"  # beside the rules
VALUES: Final = tuple(sorted((CHART / "ci").glob("*.yaml")))
NO_SCHEMA: Final = "ServiceMonitor"  # of the Prometheus operator, not of Kubernetes
EXPOSURE_MAX: Final = 15  # tenths, as systemd-analyze takes them
LOOPBACK: Final = "127.0.0.1"
ONE_SHOTS: Final = ("folders", "first-row")


def lint_image() -> list[str]:
    """hadolint reads the container file."""
    said = run([python_tool("hadolint"), "--no-color", CONTAINER_FILE])
    return said.stdout.splitlines() + said.stderr.splitlines()


def build_images() -> list[str]:
    """Both images are built, where an engine answers."""
    docker = shutil.which("docker")
    if docker is None or run([docker, "info"]).returncode:
        raise NotCheckedError("no container engine answers here")
    found = []
    for target in ("service", "worker"):
        said = run([docker, "build", "--quiet", "--file", str(CONTAINER_FILE), "--target", target, str(ROOT)])
        if said.returncode:
            found.append(f"{target}: {last_lines(said)}")
    return found


def compose_model(*more: Path, build: bool = True) -> dict[str, Any]:
    """The compose file, with others over it, as the loader of `docker compose` reads it."""
    compose = go_tool(deploy_tools.COMPOSE, build=build)
    names = [path.name for path in (COMPOSE_FILE, *more)]
    said = run([compose, "--format", "json", *names], folder=COMPOSE_FILE.parent)
    if said.returncode:
        raise ValueError(last_lines(said))
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def check_compose(*, build: bool = True) -> list[str]:
    """The compose files are valid, their files are there, and every service is locked up."""
    found: list[str] = []
    for more in ((), (COMPOSE_PAIR,)):
        try:
            model = compose_model(*more, build=build)
        except ValueError as error:
            found.append(str(error))
            continue
        files = [Path(config["file"]) for config in model["configs"].values()]
        found += [f"{file} is missing" for file in files if not file.exists()]
        for name, service in model["services"].items():
            found += [f"{name}: {line}" for line in list_open_doors(name, service)]
    return found


def variables_of(service: dict[str, Any]) -> dict[str, str]:
    """A service's environment; the loader says it as a mapping, or where two files are merged as a list."""
    given: dict[str, str] | list[str] = service.get("environment", {})
    return dict(one.split("=", 1) for one in given) if isinstance(given, list) else given


def list_open_doors(name: str, service: dict[str, Any]) -> Iterator[str]:
    if not service.get("read_only"):
        yield "its root is writable"
    if service.get("cap_drop") != ["ALL"] or service.get("privileged"):
        yield "it keeps capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", ()):
        yield "it may gain privileges"
    if name not in ONE_SHOTS and "test" not in service.get("healthcheck", {}) and "build" not in service:
        yield "nothing asks whether it is well"
    tag = service["image"].rpartition(":")[2]
    if "/" in tag or tag == "latest":
        yield f"{service['image']} names no version"
    for port in service.get("ports", ()):
        if port.get("host_ip") != LOOPBACK:
            yield f"port {port['target']} is published on other addresses than {LOOPBACK}"


def render(values: Path, *, build: bool = True) -> str:
    helm = go_tool(deploy_tools.HELM, build=build)
    version = deploy_tools.KUBERNETES[1].removeprefix("v")
    words = ["template", "lake", str(CHART), "--namespace", "lake", "--values", str(values), "--kube-version", version]
    said = run([str(helm), *words])
    if said.returncode:
        raise ValueError(last_lines(said))
    return said.stdout


def check_chart(*, build: bool = True) -> list[str]:
    """helm lints and renders the chart with each file of values; the objects fit Kubernetes' schemas."""
    helm, kubeconform = (go_tool(one, build=build) for one in (deploy_tools.HELM, deploy_tools.KUBECONFORM))
    schemas = deploy_tools.kubernetes_schemas(build=build)
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    found = []
    for values in VALUES:
        said = run([helm, "lint", "--strict", "--quiet", "--values", values, CHART])
        if said.returncode:
            found.append(f"{values.name}: {last_lines(said)}")
            continue
        text = render(values, build=build)
        command = [str(kubeconform), "-strict", "-skip", NO_SCHEMA, "-schema-location", location, "-"]
        said = subprocess.run(command, input=text, check=False, capture_output=True, text=True)
        found += [f"{values.name}: {line}" for line in said.stdout.splitlines() + said.stderr.splitlines()]
        for document in read_yaml(text):
            found += [f"{values.name}: {document['kind']}: {line}" for line in list_loose_ends(document)]
    return found


def list_loose_ends(document: dict[str, Any]) -> Iterator[str]:
    """What no schema knows of the pods that an object makes."""
    spec = document.get("spec", {})
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
    if template is None:
        return
    pod = template["spec"]
    if not pod["securityContext"].get("runAsNonRoot"):
        yield "it may run as root"
    if pod.get("automountServiceAccountToken") is not False:
        yield "it gets the token of its account"
    mounted = {volume["name"] for volume in pod["volumes"]}
    mounted |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
    for container in pod["containers"]:
        security = container["securityContext"]
        if not security.get("readOnlyRootFilesystem") or security.get("allowPrivilegeEscalation") is not False:
            yield f"{container['name']}: its root is writable, or it may gain privileges"
        if security.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{container['name']}: it keeps capabilities"
        if "memory" not in container["resources"].get("limits", {}):
            yield f"{container['name']}: its memory has no limit"
        if missing := {mount["name"] for mount in container["volumeMounts"]} - mounted:
            yield f"{container['name']}: it mounts what is not there: {', '.join(sorted(missing))}"


def check_units() -> list[str]:
    """systemd reads the units, and rates how much of the machine each service sees."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        raise NotCheckedError("there is no systemd-analyze here")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        # The commands of the units are not installed here: /bin/true takes their places in a copy.
        for unit in (*UNITS.glob("*.service"), *UNITS.glob("*.timer")):
            text = unit.read_text(encoding="utf-8").replace("/opt/laketx-worker/bin/laketx", "/bin/true")
            (Path(folder) / unit.name).write_text(text.replace("/opt/laketx/bin/laketx", "/bin/true"), encoding="utf-8")
        units = sorted(Path(folder).iterdir())
        said = run([analyze, "verify", "--man=no", *units])
        if said.returncode or "laketx" in said.stderr:
            found += [line for line in said.stderr.splitlines() if "laketx" in line] or [last_lines(said)]
        for unit in (unit for unit in units if unit.suffix == ".service"):
            said = run([analyze, "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}", unit])
            if said.returncode:
                found.append(f"{unit.name}: {last_lines(said).rpartition(' | ')[2]}")
    return found


def check_rules(*, build: bool = True) -> list[str]:
    """promtool reads Prometheus' configuration and the rules, as the compose file has them, and plays alarms."""
    promtool = shutil.which("promtool") or go_tool(deploy_tools.PROMTOOL, build=build)
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ALERTS, folder)
        for path in COMPOSE_FILE.parent.glob("prometheus*.yml"):
            shutil.copy(path, folder)
            said = run([str(promtool), "check", "config", str(Path(folder) / path.name)])
            found += [last_lines(said)] if said.returncode else []
        played = shutil.copy(ALERTS_PLAYED, folder)
        said = run([str(promtool), "test", "rules", played])
        found += [line for line in (said.stdout + said.stderr).splitlines() if line.strip()] if said.returncode else []
    return found


def check_vulnerabilities() -> list[str]:
    """pip-audit knows nothing against what the images install."""
    return [line for lock in LOCKS for line in audit.audit(lock)]


CHECKS: Final[tuple[tuple[str, Callable[[], list[str]]], ...]] = (
    ("the container file", lint_image),
    ("the images", build_images),
    ("the compose file", check_compose),
    ("the chart", check_chart),
    ("the systemd units", check_units),
    ("the alert rules", check_rules),
    ("known vulnerabilities", check_vulnerabilities),
)


def main(arguments: Sequence[str]) -> int:
    GO.mkdir(parents=True, exist_ok=True)
    failed = missed = 0
    for title, check in CHECKS:
        try:
            found = check()
        except NotCheckedError as error:
            missed += 1
            print(f"not checked: {title}: {error}", flush=True)
            continue
        failed += bool(found)
        print("\n".join([f"{'wrong' if found else 'checked'}: {title}", *(f"  {line}" for line in found)]), flush=True)
    return int(bool(failed) or (bool(missed) and "--require" in arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
