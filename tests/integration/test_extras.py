"""Each extra brings what its part of LakeTX imports, and a new user's first steps work with it alone.

The quick tests run in environments that are links to this one; the long ones install the wheel with pip.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.conformance.server import stop, wait_for_address
from tests.house.tree import ROOT
from tests.integration.bucket import BUCKET, bucket
from tests.integration.collector import collector
from tests.integration.environments import EXTRAS, install_environment, link_environment, run_in
from tests.integration.oidc_provider import provider
from tools import wheels

OPTIONAL = {  # modules of the service that an extra brings the libraries of
    "slatedb": {
        "metaservice.server.bucket_metrics",
        *(f"metaservice.store.engines.{name}" for name in ("slate", "slate_binding", "slate_reader", "slate_requests")),
    },
    "opentelemetry": {"metaservice.rpc.observe.otlp"},
    "jwt": {"metaservice.rpc.auth.oidc"},
    "botocore": {
        "metaservice.rpc.auth.storage_tokens",
        *(f"metaservice.store.lease.{name}" for name in ("lease_object", "log_record", "standby_notes")),
    },
}
BRINGS = {"s3": {"slatedb", "botocore"}, "sts": {"botocore"}, "oidc": {"jwt"}, "otel": {"opentelemetry"}}
ROOMS = ("arrow", "base", "commit", "connection", "dataframes", "files", "formats", "services", "spark")
BOTH_ENGINES = ("laketx", *[f"worker.{room}" for room in ROOMS])
WHOLE = {
    "arrow": BOTH_ENGINES,
    "spark": BOTH_ENGINES,
    "iceberg": ("worker.iceberg", "worker.web"),
    "console": ("worker.console", "worker.web"),
    "imports": ("worker.imports",),
    "views": (*BOTH_ENGINES, "worker.views"),
    "kafka": BOTH_ENGINES,
    "dlt": BOTH_ENGINES,
}
KAFKA = {"confluent_kafka", "grpc_tools"}  # a command of its own
DLT = {"dlt"}  # a package of its own
SPARK = {"pyspark", "py4j", "prompt_toolkit"}  # an interactive SQL shell is one of Spark
IMPORT_ALL = """
import importlib, json, pkgutil, sys
missing = {}
for root in sys.argv[1:]:
    for one in pkgutil.walk_packages(importlib.import_module(root).__path__, root + "."):
        if not one.name.endswith("__main__") and not one.name.startswith("worker.spark_catalog"):
            try:
                importlib.import_module(one.name)
            except ModuleNotFoundError as error:
                missing.setdefault(error.name.partition(".")[0], []).append(one.name)
print(json.dumps(missing))
"""
BESIDE = {"arrow": ("duckdb", "pandas")}  # what its page has to be installed as well
ROWS = """
import laketx
with laketx.connect("lake") as lake:
    orders = lake.create_table("shop.orders", "id bigint")
    orders.append([{"id": 1}, {"id": 2}])
    print(orders.count())
"""


@pytest.mark.parametrize(
    "extra",
    [one if one in ("", "arrow", "spark", "iceberg") else pytest.param(one, marks=pytest.mark.long) for one in EXTRAS],
)
def test_what_is_imported_is_what_the_extra_brings(extra: str, tmp_path: Path) -> None:
    python = link_environment(tmp_path / "env", extra)
    done = run_in(python, tmp_path, "-c", IMPORT_ALL, *WHOLE.get(extra, ("metaservice",)))
    assert done.returncode == 0, done.stderr
    missing = {name: set(modules) for name, modules in json.loads(done.stdout).items()}
    if extra in WHOLE:
        others = {"spark": SPARK, "kafka": KAFKA, "dlt": DLT}
        assert set(missing) <= {name for other, names in others.items() if other != extra for name in names}
    else:
        assert missing == {name: modules for name, modules in OPTIONAL.items() if name not in BRINGS.get(extra, ())}


# -- the first steps, as the pages have them ---------------------------------------------------------------------------


def blocks(page: str, language: str = "python") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def play(python: Path, folder: Path, code: str) -> str:
    done = run_in(python, folder, "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def laketx(python: Path, folder: Path, *words: str) -> str:
    done = run_in(python, folder, "-m", "metaservice.cli", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(python: Path, folder: Path, *words: str) -> str:
    done = run_in(python, folder, *words)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


@contextmanager
def serving(python: Path, folder: Path, *words: str, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of `laketx serve`."""
    command = [str(python), "-m", "metaservice", "--listen", "127.0.0.1:0", "--data", str(folder / "data"), *words]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stderr.txt").open("wb") as stderr:
        running = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        yield wait_for_address(running, folder / "stderr.txt")
    finally:
        stop(running)


def play_none(python: Path, folder: Path) -> None:
    """docs/embedded.md, and sentences for what needs more."""
    (block,) = blocks("docs/embedded.md")
    (folder / "lake").mkdir(parents=True)
    laketx(python, folder, "--folder", "lake", "table", "create", "sales", "id bigint")
    play(python, folder, block)
    assert "sales" in laketx(python, folder, "--folder", "lake", "table", "list")
    done = run_in(python, folder, "-c", "from laketx import connect")
    assert "laketx.connect needs pyarrow: pip install 'laketx[arrow]'" in done.stderr.splitlines()[-1]
    needs = {"head sales": "arrow", "sql": "spark", "iceberg serve": "iceberg", "import iceberg x y": "imports"}
    for words, extra in needs.items():
        said = refusal(python, folder, "-m", "metaservice.cli", "--folder", "lake", *words.split())
        assert f"pip install 'laketx[{extra}]'" in said
    assert "laketx[arrow]" in refusal(python, folder, "-m", "metaservice.cli", "worker", "--folder", "lake")
    flags = {"--store s3://bucket/lake/meta": "s3", "--storage-role arn:aws:iam::123456789012:role/lake": "sts"}
    flags["--oidc-issuer http://127.0.0.1:1 --oidc-audience x"] = "oidc"
    for words, extra in flags.items():
        serve = ("-m", "metaservice", "--data", str(folder / "data"), "--listen", "127.0.0.1:0")
        assert f"laketx[{extra}]" in refusal(python, folder, *serve, *words.split())


def play_arrow(python: Path, folder: Path) -> None:
    before = """
import laketx
with laketx.connect("./warehouse") as lake:
    orders = lake.create_table("shop.orders", "id bigint, amount double", primary_key=["id"])
    orders.upsert([{"id": 1, "amount": 10.0}, {"id": 2, "amount": 20.0}])
    orders.upsert([{"id": 2, "amount": 25.0}, {"id": 3, "amount": 30.0}])
"""
    assert "30.0" in play(python, folder, "\n".join([before, *blocks("docs/arrow.md")]))
    known = ("--folder", "warehouse")
    assert "26.0" in laketx(python, folder, *known, "head", "shop.orders", "--columns", "id,amount")
    laketx(python, folder, *known, "export", "shop.orders", "--to", "orders.csv")
    assert "6 rows" in laketx(python, folder, *known, "load", "shop.orders", "orders.csv")
    said = refusal(python, folder, "-m", "metaservice.cli", *known, "import", "iceberg", "http://127.0.0.1:1", "shop.x")
    assert "laketx[imports]" in said
    assert "laketx[spark]" in refusal(python, folder, "-m", "metaservice.cli", "worker", *known, "--spark")
    compact = "import laketx; print(laketx.connect('warehouse').table('shop.orders').compact('major').version)"
    assert int(play(python, folder, compact)) > 0


def play_views(python: Path, folder: Path) -> None:
    (block,) = blocks("docs/views.md")
    assert play(python, folder, block).count("incremental") == 2
    known = ("--folder", "warehouse", "view")
    assert "invertible" in laketx(python, folder, *known, "explain", "shop.daily")
    assert "has the 2 rows of its query" in laketx(python, folder, *known, "verify", "shop.daily")


def play_spark(python: Path, folder: Path) -> None:
    """The service of a folder and rows; a session is started by the long test alone."""
    assert play(python, folder, ROWS) == "2\n"


def play_spark_with_a_session(python: Path, folder: Path) -> None:
    (example,) = [one for one in blocks("docs/quickstart.md") if "lake.spark" in one]
    assert "lost a race" in play(python, folder, example)
    statement = "SELECT count(*) AS n FROM lake.shop.orders"
    assert laketx(python, folder, "--folder", "spark-lake", "sql", "-e", statement).split() == ["N", "2"]


def play_iceberg(python: Path, folder: Path) -> None:
    """The commands of docs/iceberg.md."""
    assert play(python, folder, ROWS) == "2\n"
    assert "metadata" in laketx(python, folder, "--folder", "lake", "iceberg", "export", "shop.orders")
    command = [str(python), "-m", "metaservice.cli", "--folder", "lake", "iceberg", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as serve:
        assert serve.stdout is not None
        line = serve.stdout.readline()
        try:
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - slow

            catalog = load_catalog("lake", type="rest", uri=line.split()[-1], warehouse="v3")
            assert catalog.load_table("shop.orders").scan().to_arrow().num_rows == 2
        finally:
            serve.terminate()


def play_imports(python: Path, folder: Path) -> None:
    """The commands of docs/import.md."""
    import pyarrow as pa  # noqa: PLC0415 - slow
    from deltalake import write_deltalake  # noqa: PLC0415 - likewise
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - likewise

    folder.mkdir()
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    write_deltalake(str(folder / "visits"), rows)
    catalog = load_catalog("laketx", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/ice")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", rows.schema)
    table.append(rows)
    (folder / "lake").mkdir()
    known = ("--folder", "lake", "import")
    assert "1 files with 2 rows" in laketx(python, folder, *known, "delta", "visits", "--as", "shop.visits")
    found = laketx(python, folder, *known, "iceberg", f"sqlite:///{folder}/catalog.db", "shop.orders")
    assert "1 files with 2 rows" in found


def play_s3(python: Path, folder: Path) -> None:
    """The service of docs/high-availability.md, and a backup into the bucket."""
    folder.mkdir()
    with (
        bucket(folder) as known,
        serving(python, folder, "--store", f"s3://{BUCKET}/lake/meta", environment=known) as address,
    ):
        server = ("--server", address)
        laketx(python, folder, *server, "table", "create", "sales", "id bigint")
        assert "sales" in laketx(python, folder, *server, "table", "list")


def play_sts(python: Path, folder: Path) -> None:
    """The service of docs/security.md starts with its role; keys themselves need a token service of S3."""
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_EC2_METADATA_DISABLED": "true"}
    role = ("--storage-role", "arn:aws:iam::123456789012:role/lake", "--storage-region", "eu-central-1")
    with serving(python, folder, *role, environment=keys) as address:
        assert laketx(python, folder, "--server", address, "table", "list")


def play_oidc(python: Path, folder: Path) -> None:
    """The service of docs/security.md, and a token of a provider."""
    with provider({"sub": "ana"}) as issuer:
        flags = ("--oidc-issuer", issuer.issuer, "--oidc-audience", "laketx", "--admins", "ana")
        with serving(python, folder, *flags, environment={}) as address:
            (folder / "token").write_text(issuer.token("ana", "laketx"), encoding="utf-8")
            whoami = ("-m", "metaservice.cli", "--server", address, "whoami")
            done = run_in(python, folder, *whoami, environment={"LAKETX_TOKEN_FILE": str(folder / "token")})
            assert (done.returncode, "ana" in done.stdout) == (0, True), done.stderr


def play_otel(python: Path, folder: Path) -> None:
    """The service of docs/telemetry.md, and a span of a call."""
    with collector() as found:
        known = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{found.address}", "OTEL_BSP_SCHEDULE_DELAY": "100"}
        with serving(python, folder, environment=known) as address:
            laketx(python, folder, "--server", address, "table", "create", "sales", "id bigint")
            found.wait_for(lambda: found.named("laketx.v1.CatalogService/CreateTable"))
        assert "otel_missing" not in (folder / "stderr.txt").read_text(encoding="utf-8")


def play_dlt(python: Path, folder: Path) -> None:
    """The pipeline of docs/dlt.md, and what it has loaded."""
    folder.mkdir()
    quiet = {"DLT_DATA_DIR": str(folder / "dlt"), "RUNTIME__DLTHUB_TELEMETRY": "false"}
    done = run_in(python, folder, "-c", "\n".join(blocks("docs/dlt.md")), environment=quiet)
    assert (done.returncode, done.stdout.split()) == (0, ["1", "2"]), done.stderr


def play_console(python: Path, folder: Path) -> None:
    """The first command of docs/console.md, and an answer of the console."""
    assert play(python, folder, ROWS) == "2\n"
    command = [str(python), "-m", "metaservice.cli", "--folder", "lake", "console", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        address = re.search(r"http://[^/\s]+", running.stdout.readline())
        try:
            assert address is not None
            with urlopen(f"{address.group()}/health", timeout=30) as answer:
                assert answer.status == HTTPStatus.OK
        finally:
            running.terminate()


def play_kafka(python: Path, folder: Path) -> None:
    """The first command of docs/ingest.md, where no broker is."""
    assert play(python, folder, ROWS) == "2\n"
    words = "ingest kafka --brokers 127.0.0.1:1 --topic orders --table shop.orders"
    assert "KAFKA_UNREACHABLE" in refusal(python, folder, "-m", "metaservice.cli", "--folder", "lake", *words.split())


PLAYS: dict[str, Callable[[Path, Path], None]] = {
    "": play_none,
    "arrow": play_arrow,
    "views": play_views,
    "kafka": play_kafka,
    "dlt": play_dlt,
    "console": play_console,
    "spark": play_spark,
    "iceberg": play_iceberg,
    "imports": play_imports,
    "s3": play_s3,
    "sts": play_sts,
    "oidc": play_oidc,
    "otel": play_otel,
}


def check_first_steps(extra: str, python: Path, folder: Path) -> None:
    PLAYS[extra](python, folder)


@pytest.mark.parametrize("extra", ["", pytest.param("arrow", marks=pytest.mark.long), "spark"])
def test_the_first_steps_work_with_the_extra_alone(extra: str, tmp_path: Path) -> None:
    python = link_environment(tmp_path / "env", extra, *BESIDE.get(extra, ()))
    check_first_steps(extra, python, tmp_path / "play")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of LakeTX and of its jar, in this order."""
    target = tmp_path_factory.mktemp("dist")
    assert wheels.main([str(target)]) == 0
    return sorted(target.glob("*.whl"))


@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_first_steps_work_where_the_wheel_was_installed(extra: str, tmp_path: Path, built: list[Path]) -> None:
    found = built if extra == "spark" else built[:1]
    python = install_environment(tmp_path / "env", found, extra, *BESIDE.get(extra, ()))
    check_first_steps(extra, python, tmp_path / "play")
    if extra == "spark":
        play_spark_with_a_session(python, tmp_path / "session")
