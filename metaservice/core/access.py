"""Who calls, what roles they have, and on what.

A role is granted to a user or a group on the service, a namespace or a table, and holds for everything below. Nothing
takes a role away further down. Whoever has a role has the smaller ones too.

    reader < writer < maintainer < admin
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol, TypeVar

USER: Final = "user:"
GROUP: Final = "group:"
EVERYONE: Final = "everyone"  # a group that all have
T = TypeVar("T")
NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,256}\Z")


class Role(IntEnum):
    """What somebody may do; the larger role includes the smaller ones."""

    NONE = 0
    READER = 1
    WRITER = 2
    MAINTAINER = 3
    ADMIN = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where a role holds: a table, a namespace, or with neither the service."""

    namespace: str = ""
    table_id: str = ""

    @property
    def key(self) -> str:
        if self.table_id:
            return f"t/{self.table_id}"
        return f"n/{self.namespace.lower()}" if self.namespace else ""

    @classmethod
    def of_key(cls, key: str) -> Place:
        kind, _, name = key.partition("/")
        return cls(table_id=name) if kind == "t" else cls(namespace=name)


SERVICE: Final = Place()


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, to whom, and where."""

    place: Place
    grantee: str  # user:NAME or group:NAME
    role: Role
    by: str = ""
    create_us: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """A service token without its secret."""

    token_id: str
    digest: bytes  # SHA-256 of the secret
    principal: str
    groups: tuple[str, ...] = ()
    by: str = ""
    create_us: int = 0
    expires_us: int = 0  # 0: never


@dataclass(frozen=True, slots=True)
class Proof:
    """A provider's token that was checked: when, and how often the provider's keys had changed by then."""

    token: str = field(repr=False)
    checked_us: int
    changes: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, as proved."""

    principal: str
    groups: frozenset[str] = frozenset()
    how: str = ""  # token, oidc, certificate, socket
    expires_us: int = 0  # 0: never
    token_id: str = ""
    role: Role = Role.NONE  # on the service, by its settings
    proof: Proof | None = field(default=None, compare=False)
    grantees: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        groups = (f"{GROUP}{group}" for group in sorted(self.groups))
        object.__setattr__(self, "grantees", (f"{USER}{self.principal}", *groups, f"{GROUP}{EVERYONE}"))


class Policy(Protocol):
    """Decides roles: the grants of the store, or somebody else."""

    def role(self, who: Identity, namespace: str = "", table_id: str = "") -> Role:
        """The role of the caller on a table of a namespace, on a namespace, or on the service."""

    def tables_of(self, who: Identity) -> list[str]:
        """The ids of tables on which the caller may have a role though he has none on their namespace."""


class Grants:
    """The grants, by where they hold. Looked at for each call, from any thread; changed by one."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._roles: dict[str, dict[str, Grant]] = {}
        self._places: dict[str, dict[str, None]] = {}  # of each grantee
        for grant in grants:
            self._roles.setdefault(grant.place.key, {})[grant.grantee] = grant
            self._places.setdefault(grant.grantee, {})[grant.place.key] = None

    def __len__(self) -> int:
        return sum(map(len, self._roles.values()))

    def put(self, grant: Grant) -> None:
        """In a copy of what readers may be looking at."""
        key = grant.place.key
        self._roles[key] = {**self._roles.get(key, {}), grant.grantee: grant}
        self._places[grant.grantee] = {**self._places.get(grant.grantee, {}), key: None}

    def drop(self, place: Place, grantee: str) -> bool:
        """Removes a grant; returns whether it existed."""
        grants = self._roles.get(place.key, {})
        if grantee not in grants:
            return False
        left = {name: grant for name, grant in grants.items() if name != grantee}
        places = {key: None for key in self._places[grantee] if key != place.key}
        _put_or_drop(self._roles, place.key, left)
        _put_or_drop(self._places, grantee, places)
        return True

    def find(self, place: Place, grantee: str) -> Grant | None:
        return self._roles.get(place.key, {}).get(grantee)

    def at(self, place: Place) -> list[Grant]:
        return list(self._roles.get(place.key, {}).values())

    def all(self) -> list[Grant]:
        return [grant for place in list(self._roles.values()) for grant in place.values()]

    def best(self, grantees: Iterable[str], places: Iterable[Place]) -> Grant | None:
        """Returns the grantees' grant with the largest role at the places: a table, its namespace, the service."""
        largest: Grant | None = None
        for place in places:
            by_grantee = self._roles.get(place.key)
            if by_grantee is None:
                continue
            for grantee in grantees:
                grant = by_grantee.get(grantee)
                if grant is not None and (largest is None or grant.role > largest.role):
                    largest = grant
        return largest

    def role(self, who: Identity, namespace: str = "", table_id: str = "") -> Role:
        """The role of the caller on a table of a namespace, on a namespace, or on the service."""
        best = self.best(who.grantees, places_of(namespace, table_id))
        return who.role if best is None else max(who.role, best.role)

    def tables_of(self, who: Identity) -> list[str]:
        """The ids of tables on which the caller has a role of its own."""
        keys = {key for grantee in who.grantees for key in self._places.get(grantee, ())}
        return [place.table_id for place in map(Place.of_key, keys) if place.table_id]


def places_of(namespace: str, table_id: str) -> list[Place]:
    places = [SERVICE]
    if namespace:
        places.append(Place(namespace=namespace))
    if table_id:
        places.append(Place(table_id=table_id))
    return places


def grantee_of(text: str) -> str | None:
    """`alice` and `user:alice` are a user, `group:data` a group; None: neither."""
    for prefix in (USER, GROUP):
        if text.startswith(prefix):
            return text if NAME.match(text.removeprefix(prefix)) else None
    return f"{USER}{text}" if NAME.match(text) else None


def role_named(text: str) -> Role | None:
    role = Role.__members__.get(text.upper())
    return None if role is Role.NONE else role


def _put_or_drop(places: dict[str, dict[str, T]], key: str, left: dict[str, T]) -> None:
    if left:
        places[key] = left
    else:
        places.pop(key, None)
