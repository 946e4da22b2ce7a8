"""The jar of the Spark catalog: where it lies, and the settings that make a lake's tables known to `spark.sql`.

A clone of the repository builds it in a folder of its own. Elsewhere it comes with a wheel for one minor version of
Spark, `laketx-spark-4.3`, beside the wheel of LakeTX.

A session has it from its start or never: a jar that is added later is loaded by a class loader of its own, and writes
fail on classes that are there twice.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from metaservice.client import Credentials

SPARK_MINOR: Final = "4.3"
CATALOG_CLASS: Final = "io.laketx.spark.LakeCatalog"
CATALOG: Final = "lake"  # the name that a session knows it by, where nothing else is said
PACKAGE: Final = f"laketx_spark_{SPARK_MINOR.replace('.', '_')}"  # of the wheel
BUILT: Final = Path(__file__).resolve().parents[1] / "spark_catalog" / "target"
EXTENSIONS_CLASS: Final = "io.laketx.spark.LakeExtensions"
JARS: Final = "spark.jars"
EXTENSIONS: Final = "spark.sql.extensions"
BRANCH_SETTING: Final = "spark.laketx.branch"  # of a session: the branch of tables whose names say none
NO_JAR: Final = (
    "the Spark session was started without the jar of LakeTX: `laketx spark-jar` says where it lies and with which "
    "settings to start a session; one that `connect` starts itself has it, where the jar is installed "
    f"(pip install laketx-spark-{SPARK_MINOR}, or in a clone make spark-jar)"
)
NO_EXTENSIONS: Final = (
    f"the Spark session was started without {EXTENSIONS}={EXTENSIONS_CLASS}: it knows neither table_changes(…) nor "
    "statements such as OPTIMIZE; `laketx spark-jar` prints all settings"
)
WITHOUT_JAR: Final = {  # of a session without the jar: where a statement names the catalog, Spark shows this text
    f"spark.sql.catalog.{CATALOG}": f"{CATALOG_CLASS}, which is in the jar of LakeTX (pip install "
    f"laketx-spark-{SPARK_MINOR}, or in a clone make spark-jar; then start a new session)"
}


def jar_name() -> str:
    return f"laketx-spark-{SPARK_MINOR}.jar"


def find_jar() -> Path | None:
    """The one that was built here, or the wheel's; None where neither is there."""
    places = [BUILT]
    wheel = importlib.util.find_spec(PACKAGE)
    if wheel is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent)
    return next((jar for place in places if (jar := place / jar_name()).is_file()), None)


def jar_setting() -> dict[str, str]:
    """What a session has to start with; nothing where there is no jar."""
    jar = find_jar()
    return {} if jar is None else {JARS: str(jar), EXTENSIONS: EXTENSIONS_CLASS}


def address_settings(uri: str, warehouse: str, user: str = "") -> dict[str, str]:
    """Return a lake's address and warehouse as settings of the catalog."""
    settings = {"uri": uri, "warehouse": warehouse, "python": sys.executable}
    if user:
        settings["user"] = user
    return settings


def credential_settings(credentials: Credentials) -> dict[str, str]:
    """What a client trusts and shows, likewise; Spark leaves the values of keys with `token` out of what it shows."""
    return {
        name: str(value).lower() if value is True else value for name, value in asdict(credentials).items() if value
    }


def catalog_settings(name: str, uri: str, warehouse: str, user: str = "") -> dict[str, str]:
    """Of a catalog of that name; a session takes them at any time until it first uses the catalog."""
    prefix = f"spark.sql.catalog.{name}"
    address = address_settings(uri, warehouse, user)
    return {prefix: CATALOG_CLASS, **{f"{prefix}.{key}": value for key, value in address.items()}}
