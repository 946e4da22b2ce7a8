"""Roles by an external policy: a server with the Data API of Open Policy Agent answers which role somebody has.

    POST URL    {"input": {"principal": "ana", "groups": ["analysts"], "namespace": "shop", "table": "shop.orders"}}
    answer      {"result": "writer"}        or without a result: no role

Answers are kept for a while. Without an answer nothing is allowed: the call is refused, and its client repeats it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

from metaservice.core.access import Identity, Role, role_named
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.shared.foreign_bytes import ForeignUnusable
from metaservice.shared.outbound_requests import ask_json

ASK_S: Final = 2.0
KNOWN_MAX: Final = 100_000
ANSWER_BYTES_MAX: Final = 1 << 16

Key = tuple[str, frozenset[str], str, str]


class ExternalPolicy:
    """Asks a policy server, and keeps its answers. Threads share it."""

    def __init__(self, url: str, keep_s: float, name_of: Callable[[str], str], now_s: Callable[[], float]) -> None:
        """`name_of` is the name of a table by its id; empty: there is none."""
        self._url = url
        self._keep_s = keep_s
        self._name_of = name_of
        self._now_s = now_s
        self._cached: OrderedDict[Key, tuple[float, Role]] = OrderedDict()
        self._lock = Lock()

    def role(self, who: Identity, namespace: str = "", table_id: str = "") -> Role:
        if who.role is Role.ADMIN:  # by the service's settings, or its owner: he can mend the policy
            return who.role
        table = self._name_of(table_id) if table_id else ""
        key = who.principal, who.groups, namespace, table
        cached = self._cached.get(key)
        if cached is None or cached[0] <= self._now_s():
            cached = self._now_s() + self._keep_s, self._ask(who, namespace, table)
            with self._lock:
                self._cached[key] = cached
                while len(self._cached) > KNOWN_MAX:
                    self._cached.popitem(last=False)
        return cached[1]

    def tables_of(self, who: Identity) -> list[str]:
        return []

    def _ask(self, who: Identity, namespace: str, table: str) -> Role:
        question = {"principal": who.principal, "groups": sorted(who.groups), "namespace": namespace, "table": table}
        try:
            result = ask_json(self._url, ASK_S, ANSWER_BYTES_MAX, body=json.dumps({"input": question}).encode()).get(
                "result"
            )
        except ForeignUnusable as error:
            raise MetaError(
                ErrorKind.UNAVAILABLE, "POLICY_UNREACHABLE", f"the policy gives no answer: {error}"
            ) from error
        if result is None or result == "":
            return Role.NONE
        role = role_named(result) if isinstance(result, str) else None
        if role is None:
            raise MetaError(
                ErrorKind.UNAVAILABLE, "POLICY_UNREACHABLE", f"the policy answers no role: {result!r}"[:200]
            )
        return role
