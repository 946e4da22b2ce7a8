"""What the tree holds: the files that a commit would have."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED_SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def list_files(*suffixes: str) -> list[Path]:
    """Files that are committed or could be, those that git ignores left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    paths = (ROOT / name for name in sorted(names) if name and name.endswith(suffixes or ("",)))
    return [path for path in paths if path.is_file()]


def list_written_by_hand() -> list[tuple[Path, str]]:
    """Text files and what they say, generated code left out."""
    found = []
    for path in list_files():
        if path.name.endswith(GENERATED_SUFFIXES):
            continue
        try:
            found.append((path, path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
