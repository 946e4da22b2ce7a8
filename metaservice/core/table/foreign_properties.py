"""Properties of other systems, as their users type them: what they mean here, or what to type instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from metaservice.core.errors import invalid
from metaservice.core.table.meta import Profile

DELETE_SETS: Final = "delete_sets"
DELTA: Final = "delta."


@dataclass(frozen=True, slots=True)
class Meaning:
    """The effect of a value: a profile, a feature, or nothing, because tables are so anyway."""

    profile: Profile | None = None
    feature: str = ""


@dataclass(frozen=True, slots=True)
class Translated:
    """Properties without foreign ones, and what those said."""

    properties: Mapping[str, str]
    profile: Profile | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignProperty:
    """A property of another system. `meanings` are its accepted values, in lower case; `advice` is for all others."""

    name: str
    advice: str
    meanings: Mapping[str, Meaning]

    @property
    def system(self) -> str:
        """Whose it is."""
        return "Delta Lake" if self.name.startswith(DELTA) else "MaxCompute"


ANYWAY: Final = Meaning()
FOREIGN_PROPERTIES: Final = (
    ForeignProperty(
        "delta.isolationLevel",
        "a table's isolation is its profile: set `profile` to one of the four",
        {
            "serializable": Meaning(Profile.DELTA_SERIALIZABLE),
            "writeserializable": Meaning(Profile.DELTA_WRITE_SERIALIZABLE),
        },
    ),
    ForeignProperty(
        "delta.enableDeletionVectors",
        "UPDATE, DELETE and MERGE never rewrite files here: leave the property out",
        {"true": Meaning(feature=DELETE_SETS)},
    ),
    ForeignProperty(
        "delta.columnMapping.mode",
        "columns always have ids here, and are renamed and dropped without a rewrite: leave the property out",
        {"name": ANYWAY, "id": ANYWAY},
    ),
    ForeignProperty(
        "delta.enableChangeDataFeed",
        "changes of rows can always be read, as long as their versions are kept: leave the property out",
        {"true": ANYWAY},
    ),
    ForeignProperty(
        "delta.logRetentionDuration", "how long versions are kept is `data.retain.hours`, such as 168: set that", {}
    ),
    ForeignProperty(
        "delta.deletedFileRetentionDuration",
        "how long versions and their files are kept is `data.retain.hours`, such as 168: set that",
        {},
    ),
    ForeignProperty(
        "delta.appendOnly", "no table refuses changes of its rows for good: leave the property out", {"false": ANYWAY}
    ),
    ForeignProperty("transactional", "every table is transactional here: leave the property out", {"true": ANYWAY}),
    ForeignProperty("write.bucket.num", "the number of buckets is set when a table is created, as `buckets`", {}),
    ForeignProperty(
        "acid.data.retain.hours", "how long versions are kept is `data.retain.hours`, such as 168: set that", {}
    ),
)
_BY_NAME: Final = {definition.name.lower(): definition for definition in FOREIGN_PROPERTIES}


def translated(properties: Mapping[str, str]) -> Translated:
    """What the properties mean here. Raises PROPERTY_INVALID or PROPERTY_UNKNOWN, with what to do instead."""
    kept: dict[str, str] = {}
    profiles: set[Profile] = set()
    features: set[str] = set()
    for name, value in properties.items():
        foreign = _foreign(name)
        if foreign is None:
            kept[name] = value
            continue
        meaning = foreign.meanings.get(value.strip().lower())
        if meaning is None:
            raise _refusal(foreign, value)
        profiles |= {meaning.profile} if meaning.profile else set()
        features |= {meaning.feature} if meaning.feature else set()
    return Translated(kept, next(iter(profiles), None), tuple(sorted(features)))


def check_removable(names: Iterable[str]) -> None:
    """Refuses to remove a foreign property: none is stored."""
    for name in names:
        foreign = _foreign(name)
        if foreign is not None:
            raise invalid("PROPERTY_UNKNOWN", foreign.advice, property=name[:128])


def _foreign(name: str) -> ForeignProperty | None:
    foreign = _BY_NAME.get(name.lower())
    if foreign is None and name.lower().startswith(DELTA):
        return ForeignProperty(name, "a property of Delta Lake that means nothing here: leave it out", {})
    return foreign


def _refusal(foreign: ForeignProperty, value: str) -> Exception:
    if not foreign.meanings:
        return invalid("PROPERTY_UNKNOWN", foreign.advice, property=foreign.name[:128])
    takes = " | ".join(foreign.meanings)
    return invalid("PROPERTY_INVALID", foreign.advice, property=foreign.name, value=value[:128], takes=takes)
