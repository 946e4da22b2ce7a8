"""The destination as dlt sees it: what it can do, and which class loads."""

from __future__ import annotations

from typing import Any, Final

from dlt.common.destination import Destination, DestinationCapabilitiesContext
from dlt.common.destination.client import JobClientBase

from laketx.dlt.configuration import LakeConfiguration

NAME_MAX: Final = 128  # characters; dlt shortens longer names
FILE_BYTES: Final = 128 * 1024 * 1024


class laketx(Destination[LakeConfiguration, JobClientBase]):  # noqa: N801 - as dlt names its destinations
    """A lake as the destination of a pipeline of dlt.

        dlt.pipeline("shop", destination=laketx("./warehouse"), dataset_name="shop")

    where: a folder, or the address of a service, as for `laketx.connect`.
    warehouse: the location of data files; a service needs it, a folder doesn't.
    user: the name in the history of the tables. Default: dlt.
    profile: the conflict profile of new tables. Default: the service's.

    The settings can also come from dlt's configuration, in the section `destination.laketx`.
    """

    spec = LakeConfiguration

    def __init__(
        self,
        where: str | None = None,
        warehouse: str | None = None,
        *,
        user: str | None = None,
        profile: str | None = None,
        destination_name: str | None = None,
        environment: str | None = None,
        **settings: Any,
    ) -> None:
        given = {"where": where, "warehouse": warehouse, "user": user, "profile": profile}
        super().__init__(
            destination_name=destination_name,
            environment=environment,
            **{name: value for name, value in given.items() if value is not None},
            **settings,
        )

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        able = DestinationCapabilitiesContext()
        able.preferred_loader_file_format = "parquet"
        able.supported_loader_file_formats = ["parquet", "reference"]
        able.supported_merge_strategies = ["delete-insert", "upsert", "insert-only", "scd2"]
        able.supported_replace_strategies = ["insert-from-staging"]
        able.has_case_sensitive_identifiers = False
        able.max_identifier_length = able.max_column_identifier_length = NAME_MAX
        able.supports_ddl_transactions = False
        able.supports_nested_types = True
        able.decimal_precision = (38, 9)
        able.wei_precision = (38, 0)
        able.timestamp_precision = 6
        able.recommended_file_size = FILE_BYTES
        return able

    @property
    def client_class(self) -> type[JobClientBase]:
        """The class that loads."""
        from laketx.dlt.client import LakeClient  # noqa: PLC0415 - dlt names destinations without loading them

        return LakeClient


laketx.register()
