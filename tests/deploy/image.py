"""What the container file says, for tests that play it by hand."""

import re
from pathlib import Path

from tests.house.tree import ROOT
from tests.integration.service import free_address

TEXT = (ROOT / "deploy" / "image" / "Dockerfile").read_text(encoding="utf-8")


def environment_of_image(folder: Path) -> dict[str, str]:
    """The variables of the service's image, its places below a folder and its ports free ones."""
    stage = TEXT.partition("AS service\n")[2].partition("\nFROM ")[0]
    block = re.search(r"^ENV (.*?[^\\])$", stage, re.MULTILINE | re.DOTALL)
    assert block is not None
    found = dict(word.split("=", 1) for word in block[1].replace("\\\n", " ").split())
    address, metrics = free_address(), free_address()
    moved = {
        "PATH": f"{folder}/opt/bin:/usr/bin:/bin",
        "HOME": str(folder / "var"),
        "LAKETX_LISTEN": address,
        "LAKETX_METRICS_LISTEN": metrics,
        "LAKETX_SERVER": address,
    }
    places = {name: value.replace("/var/lib/laketx", str(folder / "var")) for name, value in found.items()}
    assert moved.keys() - places.keys() == {"LAKETX_SERVER"}
    return places | moved
