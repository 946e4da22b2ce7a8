"""The settings of the destination."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from dlt.common.configuration import configspec
from dlt.common.destination.client import DestinationClientDwhConfiguration
from dlt.common.utils import digest128


@configspec
class LakeConfiguration(DestinationClientDwhConfiguration):
    """Where the lake is. The fields are those of `laketx.connect`."""

    destination_type: str = dataclasses.field(default="laketx", init=False, repr=False, compare=False)
    where: str = ""
    warehouse: str | None = None
    user: str = "dlt"
    profile: str | None = None

    __config_gen_annotations__: ClassVar[list[str]] = ["where", "warehouse"]

    def physical_location(self) -> str:
        """Return where the tables are."""
        return self.where

    def fingerprint(self) -> str:
        """Return a digest of where the tables are."""
        return digest128(self.where)
