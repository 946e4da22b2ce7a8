"""The way into a lake: a folder with a service of its own, or the address of a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from laketx.lake import Lake
from metaservice.client import Credentials, MetaClient
from metaservice.client.credentials import is_address, with_scheme
from metaservice.client.folder_service import looks_like_address, open_folder
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.files.storage import s3_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laketx import companions
    from worker.services.compaction import daemon
else:
    companions = LazyModule("laketx.companions")
    daemon = LazyModule("worker.services.compaction.daemon")

CLIENT_NAME: Final = "laketx-worker"


def connect(
    where: str | Path,
    spark: SparkSession | None = None,
    *,
    user: str = "",
    warehouse: str | Path | None = None,
    maintenance: bool = False,
    credentials: Credentials | None = None,
    storage_keys: bool = False,
) -> Lake:
    """Opens a lake of tables: a folder, whose service starts automatically, or a service by its address.

        lake = connect("./warehouse")
        lake = connect("laketxs://meta:7070", spark, warehouse="s3a://bucket/lake", user="ana")

        orders = lake.create_table("shop.orders", "id bigint, amount double", primary_key=["id"])
        orders.insert(df)
        orders.read(commits_ago=1).show()

    where: a folder, or `laketxs://host:port` (TLS), `laketx://host:port` (without) or `unix:path` of a service.
    spark: the session, classic or Spark Connect. Default: the active session, or a new session when it is first needed.
    user: the name in the history.
    warehouse: the location of data files, a path or URI that both Spark and pyarrow can open. Default: the folder.
    maintenance: this process also does what `laketx worker` does, until the lake closes: compactions, deletion
        vectors, key indexes, refreshes of views.
    credentials: certificates and tokens of the client; by default those of the environment.
    storage_keys: the service's temporary keys open the files on S3, for calls without Spark (docs/security.md).

    Raises InputError for a wrong address or a missing warehouse, UnavailableError if no service answers.

    See also `help(Lake)`, `help(Table)` and docs/python.md.
    """
    lake = _connect(where, spark, user, "" if warehouse is None else str(warehouse), credentials, storage_keys)
    if maintenance:
        jobs = daemon.Daemon(lake, companions=companions.companions_of(lake))
        lake.at_close(jobs.stop)
        jobs.start()
    return lake


def _connect(
    where: str | Path,
    spark: SparkSession | None,
    user: str,
    warehouse: str,
    credentials: Credentials | None,
    storage_keys: bool,
) -> Lake:
    text = str(where)
    if storage_keys and not s3_uri(warehouse).startswith("s3://"):
        raise InputError("STORAGE_KEYS_NOT_S3", f"storage_keys=True is for a warehouse on S3, not {warehouse or text}")
    if isinstance(where, str) and is_address(text):
        if not warehouse:
            raise InputError(
                "WAREHOUSE_MISSING", f'the location of the files is missing: connect("{text}", warehouse=…)'
            )
        client = MetaClient(text, principal=user, client_name=CLIENT_NAME, credentials=credentials)
        try:
            client.reach()
        except BaseException:
            client.close()
            raise
        return Lake(
            client,
            _absolute(warehouse),
            spark,
            uri=text,
            user=user,
            credentials=credentials,
            storage_keys=storage_keys,
        )
    if not text:
        raise InputError("ADDRESS_INVALID", 'name a folder or a service: connect("./warehouse"); "." is this folder')
    if "://" in text:
        raise InputError(
            "ADDRESS_INVALID", f"{text} is neither a folder nor laketxs://host:port nor laketx://host:port"
        )
    if isinstance(where, str) and looks_like_address(text) and not Path(text).exists():
        raise InputError(
            "ADDRESS_INVALID", f'{text} has no scheme: use "{with_scheme(text)}", or "./{text}" for a folder'
        )
    folder = Path(text).absolute()
    return Lake(
        open_folder(folder, principal=user, client_name=CLIENT_NAME),
        _absolute(warehouse or str(folder)),
        spark,
        uri=str(folder),
        user=user,
        storage_keys=storage_keys,
    )


def _absolute(warehouse: str) -> str:
    return warehouse if "://" in warehouse or warehouse.startswith("file:") else str(Path(warehouse).absolute())
