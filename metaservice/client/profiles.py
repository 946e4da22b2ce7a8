"""The names of the profiles, as the wire takes them, the default first; the only list of them in the client."""

from typing import Final

PROFILE_NAMES: Final = (
    "maxcompute",
    "delta_serializable",
    "delta_write_serializable",
    "row_level",
)
