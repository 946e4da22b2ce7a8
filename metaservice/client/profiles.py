"""The names of the profiles, as the wire takes them, the default first: whoever lists them takes them from here."""

from typing import Final

PROFILE_NAMES: Final = (
    "maxcompute",
    "delta_serializable",
    "delta_write_serializable",
    "row_level",
)
