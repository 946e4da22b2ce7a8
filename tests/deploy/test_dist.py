"""What a release publishes: built, installed into an empty environment, tried. It downloads 0.2 GB the first time."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.deploy.image import environment_of_image
from tools import dist, spark_jar
from tools.lock import LOCKS, versions

UID = 10001


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := spark_jar.what_is_missing():
        pytest.skip(f"the jar can't be built here: {missing}")
    target = tmp_path_factory.mktemp("dist")
    assert dist.main([str(target)]) == 0
    return target


@pytest.mark.long
def test_a_release_is_whole(built: Path) -> None:
    names = [path.name for path in built.iterdir()]
    assert len([name for name in names if name.endswith(".whl")]) == 2
    assert len([name for name in names if name.endswith(".tar.gz")]) == 1
    lines = (built / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert sums == {
        name: hashlib.sha256((built / name).read_bytes()).hexdigest() for name in names if name != "SHA256SUMS"
    }
    for lock in LOCKS[:2]:
        (bill,) = built.glob(f"laketx-{lock.name}-*.cdx.json")
        document = json.loads(bill.read_text(encoding="utf-8"))
        assert document["bomFormat"] == "CycloneDX"
        listed = {one["name"].lower().replace("_", "-"): one["version"] for one in document["components"]}
        assert versions(lock).items() <= listed.items()


@pytest.mark.long
def test_the_image_by_hand(built: Path) -> None:
    """Its folder read-only, its user, its environment, from its lock file; the image's health check finds it well."""
    base = python_of_all()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        python = dist.install(built, folder / "opt", base)
        subprocess.run(["chmod", "-R", "a-w,a+rX", str(folder / "opt")], check=True)
        (folder / "var").mkdir()
        user = None
        if os.geteuid() == 0:
            os.chown(folder / "var", UID, UID)
            user = UID
        environment = environment_of_image(folder)
        laketx = str(python.with_name("laketx"))
        with subprocess.Popen([laketx, "serve"], env=environment, cwd=folder / "opt", user=user, group=user) as running:
            try:
                command = [laketx, "health", "--wait", "60"]
                subprocess.run(command, env=environment, cwd=folder / "opt", check=True, user=user, group=user)
                assert (folder / "var" / "store" / "CURRENT").exists()
            finally:
                running.terminate()
                assert running.wait(30) == 0
        subprocess.run(["chmod", "-R", "u+w", str(folder / "opt")], check=True)


def python_of_all() -> str:
    """An interpreter that the image's user can run here: root's own may lie where only root looks."""
    if os.geteuid() != 0:
        return sys.executable
    for python in (sys.executable, "/usr/bin/python3"):
        code = "import sys, venv; sys.exit(sys.version_info < (3, 11))"
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", code], user=UID, check=False).returncode == 0:
                return python
    pytest.skip("another user than root can't run a Python here")
