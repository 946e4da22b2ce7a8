"""Environments beside the project's own, for programs that it is compared or tested with: made on first use, made again
when their pins or the Python change.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".bench"


def ensure(name: str, requirements: Sequence[str], constraints: Path) -> Path:
    """The environment's interpreter, everything installed."""
    folder = FOLDER / name
    python = folder / "bin" / "python"
    stamp = folder / "ready"
    asked = f"{platform.python_version()} {requirements} {constraints.read_text(encoding='utf-8')}"
    wanted = hashlib.sha256(asked.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing {name} …", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(constraints), *requirements], check=True, stdout=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")
    return python
