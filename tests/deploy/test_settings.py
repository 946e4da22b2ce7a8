"""What deploy/ sets and calls is known: settings of the service, variables of its clients, versions, commands."""

import re
import subprocess
import sys
import tomllib

import pytest

from metaservice.server.settings import build_parser
from tests.house.tree import ROOT, list_files, name_of

TEXTS = {
    name_of(path): path.read_text(encoding="utf-8") for path in list_files() if name_of(path).startswith("deploy/")
}
CLIENTS = {
    "LAKETX_CA_FILE",
    "LAKETX_CERT_FILE",
    "LAKETX_KEY_FILE",
    "LAKETX_OIDC_CLIENT_ID",
    "LAKETX_SERVER",
    "LAKETX_TOKEN_FILE",
    "LAKETX_WAREHOUSE",
}
OWN = {  # of deploy/ itself
    "LAKETX_IMAGE",
    "LAKETX_CONSOLE_OPTIONS",
    "LAKETX_CONSOLE_PORT",
    "LAKETX_ICEBERG_PORT",
    "LAKETX_METRICS_PORT",
    "LAKETX_METRICS_PORT_2",
    "LAKETX_PORT",
    "LAKETX_PORT_2",
    "LAKETX_S3_IMAGE",
    "LAKETX_S3_KEY",
    "LAKETX_S3_PATH_STYLE",
    "LAKETX_S3_PORT",
    "LAKETX_S3_SECRET",
    "LAKETX_TASKS",
    "LAKETX_WORKER_IMAGE",
}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def of_the_service() -> set[str]:
    options = (option for action in build_parser({})._actions for option in action.option_strings)
    return {"LAKETX_" + one.strip("-").replace("-", "_").upper() for one in options if one.startswith("--")}


def test_every_variable_is_known() -> None:
    named = {name for text in TEXTS.values() for name in re.findall(r"\bLAKETX_[A-Z0-9_]*[A-Z0-9]\b", text)}
    assert named - of_the_service() - CLIENTS - OWN == set()


def test_versions_are_those_of_the_project() -> None:
    found = {
        (name, version)
        for name, text in TEXTS.items()
        for version in re.findall(r"laketx(?:-worker)?:(\d+\.\d+\.\d+(?:-dev)?)", text)
        + re.findall(r"^(?:app)?[vV]ersion: (\d\S*)", text if name.endswith("Chart.yaml") else "", re.MULTILINE)
    }
    assert {name for name, _ in found} >= {"deploy/compose/compose.yaml", "deploy/helm/laketx/Chart.yaml"}
    assert {version for _, version in found} == {VERSION}


def test_hadoop_is_that_of_spark() -> None:
    """The file system of s3a:// paths has the version of the Hadoop that Spark brings."""
    pyspark = pytest.importorskip("pyspark", reason="Spark is not installed here")
    jars = [path.name for path in (ROOT / pyspark.__path__[0] / "jars").glob("hadoop-client-api-*.jar")]
    pom = TEXTS["deploy/image/s3a.pom.xml"]
    (version,) = re.findall(r"<artifactId>hadoop-aws</artifactId>\s*<version>([^<]+)<", pom)
    assert jars == [f"hadoop-client-api-{version}.jar"]
    assert f"hadoop-aws:{version}" in (ROOT / "tests/spark/s3.py").read_text(encoding="utf-8")


def commands() -> list[tuple[str, ...]]:
    """Those of units and images that are LakeTX's own."""
    units = [text for name, text in TEXTS.items() if name.endswith(".service")]
    found = [line for text in units for line in re.findall(r"^ExecStart(?:Post)?=(.+)$", text, re.MULTILINE)]
    words = [
        re.split(r"bin/laketx ", line)[1].rstrip("'").replace("$$(date -u +%%Y-%%m-%%dT%%H%%M%%S)", "b")
        for line in found
    ]
    return sorted({tuple(one.split()) for one in words} | {("purge", "run", "--yes"), ("health",)})


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_are_those_of_laketx(words: tuple[str, ...]) -> None:
    """Every option is in the command's own help."""
    plain = [word for word in words if not word.startswith(("-", "$"))]
    depth = 2 if plain[0] == "purge" else 1
    said = subprocess.run(
        [sys.executable, "-m", "metaservice.cli", *plain[:depth], "--help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert [word for word in words if word.startswith("--") and word not in said.stdout] == []


def test_the_service_sees_the_time_since_the_boot() -> None:
    """ProcSubset=pid would hide it, and with it a clock that jumped while the service was off."""
    assert "\nProcSubset=pid" not in TEXTS["deploy/systemd/laketx.service"]
