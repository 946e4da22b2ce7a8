"""pyiceberg's own integration tests of catalogs, from its published source package, against `laketx iceberg serve`."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.iceberg.engines.environment import pyiceberg_tests_or_skip
from tests.iceberg.servers import served_folder

ALL_CATALOGS: Final = "tests/integration/test_catalog.py"
REST_CATALOG: Final = "tests/integration/test_rest_catalog.py"
TIMEOUT_S: Final = 900
PASSED_MIN: Final = 28
SPEC: Final = "tables are partitioned by columns as they are, and keep their partition columns"
DEFAULTS: Final[Mapping[str, str]] = {  # what pyiceberg's tests take for granted, by the text that says so
    "my_iceberg_database-": "my_iceberg_database_",  # names have letters, digits and _
    "my_iceberg_table-": "my_iceberg_table_",
    "my_iceberg_view-": "my_iceberg_view_",
    "rename-": "rename_",
    "TEST NS": "TEST_NS",
    "identifier_field_ids=[1]": "identifier_field_ids=[]",  # Iceberg's clients make append tables
    "identifier_field_ids=[2]": "identifier_field_ids=[]",
}
DESELECTED: Final[Mapping[str, str]] = {
    "test_create_table_with_default_location": "metadata files are named by their content, not by a UUID",
    "test_create_table_transaction_multiple_schemas": "columns change only by ALTER TABLE, but for new optional ones",
    "test_incompatible_partitioned_schema_evolution": SPEC,
    "test_incompatible_sorted_schema_evolution": "tables have no sort order of Iceberg",
    "test_load_table": "each answer names another folder for new files",
    "test_namespace_with_dot": "a namespace has one part, without dots",
    "test_register_table": "a table is not registered by a metadata file",
    "test_rename_table": "metadata files are made anew under the new name",
    "test_table_name_with_dot": "names have no dots",
    "test_update_schema_conflict": "columns change only by ALTER TABLE, but for new optional ones",
    "test_update_table_spec": SPEC,
    "test_update_table_spec_conflict": SPEC,
    "test_update_table_spec_then_revert": SPEC,
    "test_update_table_transaction": SPEC,
}


@pytest.mark.long
def test_pyiceberg_tests_pass_but_for_what_is_refused(tmp_path: Path) -> None:
    python = pyiceberg_tests_or_skip()
    with served_folder(tmp_path / "lake") as server:
        source = unpacked(python, tmp_path, server.url)
        done = subprocess.run(
            [
                str(python),
                "-m",
                "pytest",
                "-q",
                "-m",
                "integration",
                "-p",
                "no:cacheprovider",
                ALL_CATALOGS,
                REST_CATALOG,
            ]
            + ["-k", "rest_test_catalog or session_catalog"]
            + [f"--deselect={ALL_CATALOGS}::{name}[rest_test_catalog]" for name in DESELECTED],
            cwd=source,
            env=own_environment(server.url),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8_000:]
    passed = int(done.stdout.splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed >= PASSED_MIN, done.stdout[-2_000:]


def unpacked(python: Path, folder: Path, url: str) -> Path:
    """The source package of the pyiceberg that the environment has, with names that tables here may have."""
    pip = [str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    wanted = version("pyiceberg")
    subprocess.run([*pip, "--no-binary", "pyiceberg", f"pyiceberg=={wanted}"], cwd=folder, check=True)
    [archive] = folder.glob("pyiceberg-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    source = folder / f"pyiceberg-{wanted}"
    for path in (source / ALL_CATALOGS, source / REST_CATALOG, source / "tests" / "conftest.py"):
        text = path.read_text(encoding="utf-8")
        for default, ours in {**DEFAULTS, "http://localhost:8181": url}.items():
            text = text.replace(default, ours)
        path.write_text(text, encoding="utf-8")
    return source


def own_environment(url: str) -> dict[str, str]:
    known = {"TYPE": "rest", "URI": url, "WAREHOUSE": "v2", "SUPPORTS_NESTED_NAMESPACES": "false"}
    found = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return found | {
        "PYICEBERG_TEST_CATALOG": "lake",
        "PYICEBERG_CATALOG__LOCAL__WAREHOUSE": known["WAREHOUSE"],  # of the tests that say the rest themselves
        **{f"PYICEBERG_CATALOG__LAKE__{one}": text for one, text in known.items()},
    }
