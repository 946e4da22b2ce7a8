"""What a distribution needs, by what is installed."""

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(distribution: str, *extras: str) -> set[str]:
    """What a distribution needs here, as far as what is installed can tell."""
    found: set[str] = set()
    waiting = [(distribution, ("", *extras))]
    while waiting:
        name, chosen = waiting.pop()
        try:
            requirements = [Requirement(line) for line in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in chosen)
            required = canonicalize_name(requirement.name)
            if wanted and required not in found:
                found.add(required)
                waiting.append((required, ("", *sorted(requirement.extras))))
    return found
