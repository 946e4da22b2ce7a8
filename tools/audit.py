"""`make audit`: known vulnerabilities of what the images install, by pip-audit; it ends with 1 if there are any.

The data are on the network: where neither PyPI's nor OSV's can be had, it says so and ends with 0, or with 1 if
`--require` is given. An index that knows no package answers as one without vulnerabilities would; that is no data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from tools.deploy_tools import NotCheckedError, last_lines, python_tool, run
from tools.lock import LOCKS, Lock

SOURCES: Final = ("pypi", "osv")
TIMEOUT_S: Final = 10


def main(arguments: Sequence[str]) -> int:
    try:
        found = [line for lock in LOCKS for line in audit(lock)]
    except NotCheckedError as error:
        print(f"not audited: {error}")
        return int("--require" in arguments)
    print("\n".join(found) or "no known vulnerabilities")
    return int(bool(found))


def audit(lock: Lock) -> list[str]:
    """A line for each vulnerability."""
    reasons = []
    for source in SOURCES:
        command = [str(python_tool("pip-audit")), "--requirement", str(lock.path), "--disable-pip", "--require-hashes"]
        command += ["--progress-spinner", "off", "--format", "json", "--vulnerability-service", source]
        said = run([*command, "--timeout", str(TIMEOUT_S)])
        try:
            dependencies = json.loads(said.stdout)["dependencies"]
        except (ValueError, KeyError):
            reasons.append(f"{source}: {last_lines(said).rpartition(' | ')[2]}")
            continue
        if skipped := [one["name"] for one in dependencies if "skip_reason" in one]:
            reasons.append(f"{source} knows nothing of {len(skipped)} of {len(dependencies)} packages")
            continue
        return findings(lock, dependencies)
    raise NotCheckedError(f"the data can't be had here ({'; '.join(reasons)})")


def findings(lock: Lock, dependencies: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{lock.name}: {one['name']} {one['version']} has {bug['id']}, mended in {' '.join(bug['fix_versions'])}"
        for one in dependencies
        for bug in one["vulns"]
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
