"""A server's certificate. Its files are looked at in each handshake, and read anew if they changed.

A pair that can't be used is logged once, and the one before it stays.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Sequence

from metaservice.shared.file_stamps import Stamp, read_stamp
from worker.base.errors import InputError

_log = logging.getLogger("laketx.web")


class Certificate:
    """A certificate and its key, as PEM files. Threads can share it."""

    def __init__(self, cert: str, key: str, reason: str) -> None:
        """`reason` is the stable word for a pair that can't be used."""
        self._cert, self._key, self.reason = cert, key, reason
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._newest = self._read()

    def show_in(self, listening: ssl.SSLContext) -> None:
        """From now on connections of the context get the newest certificate."""
        listening.sni_callback = self._at_handshake

    def _at_handshake(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        with self._lock:
            stamps = self._stamps()
            if stamps != self._seen:
                self._seen = stamps
                try:
                    self._newest = self._read()
                    _log.info("certificate_taken: %s", self._cert)
                except InputError as error:
                    _log.warning("certificate_refused: %s", error)
            connection.context = self._newest

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except (OSError, ValueError) as error:  # what is wrong with a pair is an SSLError, an OSError
            raise InputError(
                self.reason,
                f"the certificate {self._cert} with the key {self._key} can't be used: {error}; name PEM files that "
                "belong together, the key without a password",
            ) from error
        return context

    def _stamps(self) -> Sequence[Stamp | None]:
        return [read_stamp(path) for path in (self._cert, self._key)]


def _no_password() -> str:
    raise ValueError("the key is encrypted")
