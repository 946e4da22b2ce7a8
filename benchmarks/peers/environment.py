"""The peers' own environment: made on first use, made again when its pins or the Python change."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".bench" / "peers"
CONSTRAINTS = Path(__file__).resolve().parent / "constraints.txt"
REQUIREMENTS = ("deltalake", "pyiceberg[sql-sqlite,pyarrow]")


def ensure_python() -> Path:
    """The environment's interpreter, everything installed."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / "ready"
    asked = f"{platform.python_version()} {REQUIREMENTS} {CONSTRAINTS.read_text(encoding='utf-8')}"
    wanted = hashlib.sha256(asked.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print("installing the peers …", file=sys.stderr)
    venv.create(FOLDER, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(CONSTRAINTS), *REQUIREMENTS], check=True, stdout=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")
    return python
