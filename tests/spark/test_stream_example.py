"""The example of an exactly-once stream, as it stands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.stream import play
from laketx import Lake


def test_a_batch_that_spark_repeats_is_written_once(
    lake: Lake, new_name: Callable[[], str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    orders = play(lake, new_name(), tmp_path)
    assert sorted(row.id for row in orders.read().collect()) == [0, 1]
    assert "batch 1: version 2\nbatch 1: was there" in capfd.readouterr().out
