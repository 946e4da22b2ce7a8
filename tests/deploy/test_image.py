"""What the container file copies is in the tree, and gets past the file that says what a build leaves out."""

from __future__ import annotations

import re

from tests.deploy.image import TEXT
from tests.house.tree import ROOT, list_files, name_of

IGNORED = (ROOT / "deploy" / "image" / "Dockerfile.dockerignore").read_text(encoding="utf-8")


def test_what_is_copied_is_in_the_tree() -> None:
    lines = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*$", TEXT, re.MULTILINE)]
    copied = {source.rstrip("/") for sources in lines for source in sources}
    names = [name_of(path) for path in list_files()]
    kept = re.findall(r"^!(\S+)$", IGNORED, re.MULTILINE)
    assert {"laketx", "metaservice", "worker"} <= copied
    for source in {*copied, *kept}:
        assert any(name == source or name.startswith(f"{source}/") for name in names), source
    for source in copied:
        assert any(source == name or source.startswith(f"{name}/") for name in kept), source
