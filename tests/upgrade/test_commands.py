"""The command `laketx` of each release with the service of the other."""

from pathlib import Path

import pytest

from tests.integration.service import wait_until
from tests.upgrade.releases import NOW, Release
from tests.upgrade.sides import ROWS, lake_at, serving

COMMANDS = ("status", "table show t", "versions t", "files t", "check")


@pytest.mark.parametrize("service", ["before", "now"])
def test_commands_of_each_release_ask_the_service_of_the_other(before: Release, tmp_path: Path, service: str) -> None:
    serves, asks = (before, NOW) if service == "before" else (NOW, before)
    with serving(serves, tmp_path / "db") as running, lake_at(running.address, tmp_path / "files") as lake:
        lake.create_table("t", "id bigint, note string")
        for command in COMMANDS:
            done = asks.laketx(*command.split(), "--server", running.address)
            assert done.returncode == 0, f"{command}: {done.stderr}"


def test_an_older_fsck_calls_no_inlined_row_a_missing_file(featureless: Release, tmp_path: Path) -> None:
    """Its docs say to delete what is missing."""
    place = ("--warehouse", str(tmp_path / "files"))
    with serving(NOW, tmp_path / "db") as running, lake_at(running.address, tmp_path / "files") as lake:
        table = lake.create_table("t", "id bigint, note string")
        table.append(ROWS)
        done = featureless.laketx("fsck", "t", "--server", running.address, *place)
        assert "CLIENT_TOO_OLD" in done.stderr
        assert "MISSING" not in done.stdout
        assert NOW.laketx("fsck", "t", "--server", running.address, *place).returncode == 0


def test_an_older_purge_goes_past_inlined_rows(featureless: Release, tmp_path: Path) -> None:
    place = ("--warehouse", str(tmp_path / "files"))
    with serving(NOW, tmp_path / "db") as running, lake_at(running.address, tmp_path / "files") as lake:
        table = lake.create_table("t", "id bigint, note string", properties={"data.retain.hours": "0"})
        table.append(ROWS)
        table.overwrite([{"id": number, "note": "x" * 500} for number in range(2_000)])  # a file
        table.overwrite(ROWS)
        table_id = lake.client.get_table("t").table_id
        wait_until(lambda: bool(list(lake.client.list_purgeable(table_id))))
        done = featureless.laketx("purge", "run", "t", "--yes", "--server", running.address, *place)
        assert done.returncode == 0, done.stderr
        assert list(lake.client.list_purgeable(table_id)) == []
        assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == ROWS
