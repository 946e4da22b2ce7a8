"""Which addresses other machines can't reach; for the service, which listens on one, and for its clients."""

from __future__ import annotations

import ipaddress


def is_local(address: str) -> bool:
    """Whether host:port is this machine's alone, or a socket of the file system."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # another name: what it means is known where it is used
