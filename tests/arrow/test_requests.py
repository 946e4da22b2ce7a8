"""How many requests reads and writes without Spark send to an S3 server, and how many of them follow each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from laketx import Lake, Table, connect
from tests.integration.bucket import bucket
from tests.integration.service import Service
from tests.integration.slow_bucket import Request, SlowBucket, depth, far_away
from worker.files import key_index
from worker.services.key_indexes import KeyIndexKeeper

DELAY_S = 0.1  # long, so that what is sent at once overlaps on a machine that is busy
FILES = 10
AS_FILES = {"write.inline.rows": "0"}
ROWS = [{"id": number, "v": "x"} for number in range(20)]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowBucket]:
    folder = tmp_path_factory.mktemp("far")
    with (
        bucket(folder) as variables,
        far_away(variables["AWS_ENDPOINT_URL"].removeprefix("http://"), DELAY_S) as found,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in {**variables, "AWS_ENDPOINT_URL": found.url}.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def lake(there: SlowBucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    service = Service(tmp_path_factory.mktemp("service") / "store")
    try:
        with connect(f"laketx://{service.start()}", user="ana", warehouse="s3a://lake/files") as found:
            found.create_table("first", "id bigint, v string", properties=AS_FILES)  # marks the warehouse
            yield found
    finally:
        service.kill()


def asked(there: SlowBucket, work: Callable[[], object]) -> tuple[dict[str, int], Sequence[Request]]:
    """The requests of a piece of work, counted by method; it lists nothing."""
    found = there.asked(work)
    assert [one.target for one in found if one.is_listing] == []
    return dict(Counter(one.method for one in found)), found


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    found = lake.create_table("t", "id bigint, v string", properties=AS_FILES)
    for _ in range(FILES):
        found.append(ROWS)
    return found


def test_a_small_insert_is_one_request(there: SlowBucket, lake: Lake) -> None:
    table = lake.create_table("one", "id bigint, v string", properties=AS_FILES)
    counts, _ = asked(there, lambda: table.append(ROWS))
    assert counts == {"PUT": 1}


def test_few_rows_go_with_the_commit(there: SlowBucket, lake: Lake) -> None:
    table = lake.create_table("inlined", "id bigint, v string")
    counts, _ = asked(there, lambda: table.append(ROWS))
    assert counts == {}
    assert asked(there, table.to_arrow)[0] == {}


@pytest.mark.parametrize("profile", ["maxcompute", "row_level"])
def test_an_upsert_is_a_request_for_each_bucket_and_all_at_once(there: SlowBucket, lake: Lake, profile: str) -> None:
    """Also where the service gets the keys: they are those of the rows, and no file is read for them."""
    how = {"primary_key": ["id"], "buckets": 4, "properties": AS_FILES, "profile": profile}
    table = lake.create_table(f"keyed_{profile}", "id bigint, v string", **how)  # type: ignore[arg-type]
    counts, found = asked(there, lambda: table.upsert(ROWS))
    assert counts == {"PUT": 4}
    assert depth(found) < 4


@pytest.mark.parametrize("where", [None, "id = 5"])
def test_small_files_are_read_whole_and_side_by_side(there: SlowBucket, table: Table, where: str | None) -> None:
    """A HEAD and a GET each: footers are read once, with the rows."""
    counts, found = asked(there, lambda: table.to_arrow(where=where))
    assert counts == {"HEAD": FILES, "GET": FILES}
    assert depth(found) < FILES


def test_what_the_service_knows_is_not_asked(there: SlowBucket, table: Table) -> None:
    assert asked(there, table.count)[0] == {}
    assert asked(there, lambda: table.to_arrow(where="id > 1000"))[0] == {}


def test_a_delete_reads_side_by_side(there: SlowBucket, lake: Lake) -> None:
    table = lake.create_table("deleted", "id bigint, v string", properties=AS_FILES)
    for _ in range(FILES):
        table.append(ROWS)
    counts, found = asked(there, lambda: table.delete("id = 5"))
    assert counts == {"HEAD": FILES, "GET": FILES}
    assert depth(found) < FILES
    assert table.count() == FILES * (len(ROWS) - 1)


def test_increments_are_read_without_a_listing(there: SlowBucket, table: Table) -> None:
    counts, found = asked(there, lambda: table.to_arrow(since=0))
    assert counts == {"HEAD": FILES, "GET": FILES}
    assert len(found) == 2 * FILES


@pytest.mark.parametrize(("layers", "gets"), [("small", 3), ("large", 4)])
def test_the_first_look_up_reads_an_index_side_by_side(
    there: SlowBucket, lake: Lake, monkeypatch: pytest.MonkeyPatch, layers: str, gets: int
) -> None:
    """A listing, a HEAD and a GET each of the layer, its coverage and the file; of a large layer its front, a block."""
    if layers == "large":
        monkeypatch.setattr(key_index, "WHOLE_BYTES_MAX", 0)
    table = lake.create_table(
        f"keys_{layers}",
        "id bigint, v string, day int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="table",
        buckets=1,
        properties=AS_FILES,
    )
    table.upsert([{**row, "day": at % 3} for at, row in enumerate(ROWS)])
    KeyIndexKeeper(lake, now_s=lambda: 0.0, rows_at_least=1).run_once()
    key_index.forget_all()
    found = there.asked(lambda: table.get([7]))
    assert Counter(one.method for one in found if not one.is_listing) == {"HEAD": 3, "GET": gets}
    assert sum(one.is_listing for one in found) == 1
    assert depth(found) < len(found)
    counts, _ = asked(there, lambda: table.get([8]))
    assert counts == {"HEAD": 1, "GET": 1}
