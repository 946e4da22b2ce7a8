"""The address that a server listens on."""

from __future__ import annotations

import grpc


def listen_on(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """The address with the port that it got. Raises RuntimeError in words where it can't be had."""
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise RuntimeError(
            f"nobody can listen on {address}: another program does, or it is no address of this machine; "
            "--listen names another, port 0 picks a free one"
        ) from error
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
