"""Spark SQL through TLS: a certificate of the driver and a token reach the service."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Credentials, connect
from tests.integration.certificates import Authority
from tests.integration.service import service
from tests.integration.token_door import Door, door
from worker.spark.catalog_jar import catalog_settings

OLD, NEW = "old-secret", "new-secret"


@dataclass(frozen=True)
class Guarded:
    """A service behind TLS and a door, and what a client of it shows."""

    door: Door
    shown: Credentials
    token: Path
    files: Path
    stranger: Path

    @property
    def uri(self) -> str:
        return f"laketxs://{self.door.address}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tls")
    authority, clients = Authority(folder / "a"), Authority(folder / "c", "clients")
    own, driver = authority.issue("meta"), clients.issue("driver", ())
    credentials = grpc.ssl_server_credentials(
        [(own.key.read_bytes(), own.cert.read_bytes())], clients.file.read_bytes(), require_client_auth=True
    )
    token = folder / "token"
    token.write_text(OLD)
    shown = Credentials(
        ca_file=str(authority.file), cert_file=str(driver.cert), key_file=str(driver.key), token_file=str(token)
    )
    with (
        service(folder / "store") as (running, _),
        door(running.address, OLD, credentials=credentials) as found,
    ):
        yield Guarded(found, shown, token, folder / "files", clients.file)


def session_of(spark: SparkSession, guarded: Guarded, catalog: str, **others: str) -> SparkSession:
    """A session that knows the lake by that name."""
    session = spark.newSession()
    shown = {key: value for key, value in asdict(guarded.shown).items() if value} | others
    settings = catalog_settings(catalog, guarded.uri, str(guarded.files))
    for key, value in {**settings, **{f"spark.sql.catalog.{catalog}.{key}": shown[key] for key in shown}}.items():
        session.conf.set(key, value)
    return session


def test_statements_through_tls(spark: SparkSession, guarded: Guarded) -> None:
    """The token changes in between: the file has another one, and the service takes the old one no longer."""
    session = session_of(spark, guarded, "safe")
    session.sql("CREATE NAMESPACE safe.shop")
    session.sql("CREATE TABLE safe.shop.orders (id BIGINT)")
    assert {token for _, token in guarded.door.seen} == {OLD}
    guarded.door.expire(OLD, NEW)
    guarded.token.write_text(NEW)
    session.sql("INSERT INTO safe.shop.orders VALUES (1), (2)")
    assert session.sql("SELECT sum(id) FROM safe.shop.orders").collect() == [(3,)]
    assert {"Session", "PlanScan"} <= set(guarded.door.methods(NEW))
    with connect(guarded.uri, session, warehouse=str(guarded.files), credentials=guarded.shown) as lake:
        assert lake.table("shop.orders").read().count() == 2  # by the reader of the jar, which shows the same
        assert lake.as_catalog("shown")
        assert session.sql("SELECT count(*) FROM shown.shop.orders").collect() == [(2,)]


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"token": "wrong-secret"}, "TOKEN_EXPIRED"),
        ({"token_file": "", "token_command": "exit 3"}, "TOKEN_COMMAND_FAILED"),
        ({"token_file": "", "token_command": "echo"}, "TOKEN_MISSING"),
        ({"ca_file": "stranger"}, "TLS_FAILED"),
        ({"ca_file": "/nowhere/ca.pem"}, "CREDENTIALS_INVALID"),
        ({"key_file": ""}, "CREDENTIALS_INVALID"),
        ({"uri": "laketx://meta.example:7070"}, "TOKEN_NEEDS_TLS"),
    ],
)
def test_what_fails_is_said(spark: SparkSession, guarded: Guarded, others: dict[str, str], reason: str) -> None:
    if others.get("ca_file") == "stranger":
        others = {"ca_file": str(guarded.stranger)}
    session = session_of(spark, guarded, "failing", **others)
    with pytest.raises(PySparkException, match=reason) as caught:
        session.sql("SHOW NAMESPACES IN failing").collect()
    assert "secret" not in str(caught.value)


def test_a_command_prints_the_token(spark: SparkSession, guarded: Guarded, tmp_path: Path) -> None:
    """The first one is refused: the command runs once more."""
    runs = tmp_path / "runs"
    command = f"echo >> {runs}; [ $(wc -l < {runs}) = 1 ] && echo early || cat {guarded.token}"
    session = session_of(spark, guarded, "printed", token_file="", token_command=command)
    session.sql("CREATE NAMESPACE IF NOT EXISTS printed.shop")
    assert ("shop",) in [tuple(row) for row in session.sql("SHOW NAMESPACES IN printed").collect()]
    assert len(runs.read_text().splitlines()) == 2
    assert guarded.door.methods("early") != []
