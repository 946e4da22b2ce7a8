"""Tags and cursors over the wire and on the command line."""

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from metaservice.cli import command_line
from metaservice.client import GoneError, InvalidError, MetaClient, MetaServiceError, NotFoundError, StaleError
from protos.laketx.v1 import common_pb2, read_pb2, transaction_pb2
from tests.integration.keeping import FLAGS, new_table, overwrite
from tests.integration.service import Service, service, wait_until
from tests.integration.terminal import Ended

Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("marks") / "db", *FLAGS) as (found, _):
        yield found


@pytest.fixture
def client(running: Service) -> Iterator[MetaClient]:
    with MetaClient(running.address, principal="ann", client_name="tests") as found:
        yield found


@pytest.fixture
def here(running: Service, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Ended:
        capfd.readouterr()
        code = command_line.run(words, {"LAKETX_SERVER": running.address, "LAKETX_USER": "ana"})
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


def reason_of(call: Callable[[], object], kind: type[MetaServiceError]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return caught.value.reason


def test_a_tag_holds_its_version_over_a_restart(running: Service, client: MetaClient) -> None:
    table_id = new_table(client, "tagged", "0")
    first = overwrite(client, table_id)
    assert client.create_tag(table_id, "one", comment="for good").version == 1
    overwrite(client, table_id)
    overwrite(client, table_id)
    wait_until(lambda: len(list(client.list_purgeable(table_id))) == 1)
    running.kill()
    running.start()
    (tag,) = client.list_tags(table_id)
    assert (tag.name, tag.version, tag.comment, tag.principal.name) == ("one", 1, "for good", "ann")
    assert client.resolve_version(table_id, tag="one").version == 1
    assert [entry.file.path for entry in client.list_files(table_id, version=1)] == [first]
    assert client.drop_tag(table_id, "one")
    assert not client.drop_tag(table_id, "one")
    wait_until(lambda: first in list(client.list_purgeable(table_id)))
    assert reason_of(lambda: client.resolve_version(table_id, tag="one"), NotFoundError) == "TAG_UNKNOWN"
    assert reason_of(lambda: client.create_tag(table_id, "late", version=1), GoneError) == "VERSION_RETIRED"


def test_marks_are_listed_page_by_page(client: MetaClient) -> None:
    tables = sorted(new_table(client, f"paged{n}", "24") for n in range(2))
    for table_id in tables:
        for name in ("a", "b", "c"):
            client.create_tag(table_id, name)
            client.create_cursor(table_id, name)
    wanted = [(table_id, name) for table_id in tables for name in ("a", "b", "c")]
    tags = [(one.table_id, one.name) for one in client.list_tags(page_size=2) if one.table_id in tables]
    cursors = [(one.table_id, one.name) for one in client.list_cursors(page_size=2) if one.table_id in tables]
    assert tags == cursors == wanted
    assert [one.name for one in client.list_tags(tables[1], page_size=1)] == ["a", "b", "c"]


def test_a_cursor_goes_on_with_a_commit(client: MetaClient) -> None:
    source, target = new_table(client, "source", "0"), new_table(client, "target", "24")
    overwrite(client, source)
    made = client.create_cursor(source, "etl", version=0)
    assert made.created
    assert not client.create_cursor(source, "etl").created
    overwrite(client, source)
    intent = transaction_pb2.TableIntent(table_id=target, operation=common_pb2.OPERATION_INSERT)
    move = transaction_pb2.CursorMove(table_id=source, name="etl", expected_version=0, version=2)
    with client.begin([intent]) as txn:
        txn.commit([common_pb2.Change(table_id=target)], [move])
    (cursor,) = client.list_cursors(source)
    assert (cursor.version, cursor.expired) == (2, False)
    with client.begin([intent]) as txn:
        assert reason_of(lambda: txn.commit([common_pb2.Change(table_id=target)], [move]), StaleError) == "CURSOR_MOVED"
    assert client.resolve_version(target).version == 1


def test_bad_marks_are_refused(client: MetaClient) -> None:
    table_id = new_table(client, "refusing", "24")
    for name in ("", "-a", ".a", "a b", "a/b", "a" * 129):
        assert reason_of(partial(client.create_tag, table_id, name), InvalidError) == "NAME_INVALID"
        assert reason_of(partial(client.create_cursor, table_id, name), InvalidError) == "NAME_INVALID"
    assert reason_of(lambda: client.create_tag(table_id, "a", version=9), InvalidError) == "VERSION_IN_FUTURE"
    bad_keep = reason_of(lambda: client.create_cursor(table_id, "a", keep_ms=1), InvalidError)
    assert bad_keep == "COUNT_OUT_OF_RANGE"
    unknown = reason_of(lambda: client.create_cursor(table_id, "a", must_exist=True), NotFoundError)
    assert unknown == "CURSOR_UNKNOWN"
    request = read_pb2.AdvanceCursorRequest(request_id="x", table_id=table_id, name="a")
    assert reason_of(lambda: client._call(client._reads.AdvanceCursor, request), InvalidError) == "REQUEST_ID_INVALID"
    assert list(client.list_tags(table_id)) == []


def test_tags_on_the_command_line(client: MetaClient, here: Run) -> None:
    table_id = new_table(client, "shown", "0")
    overwrite(client, table_id)
    assert here("tag", "create", "shown", "first", "--comment", "for Bo").lines() == ["created tag first: shown@1"]
    overwrite(client, table_id)
    assert here("show", "shown", "--tag", "first").code == 0
    refused = here("tag", "create", "shown", "first")
    assert (refused.code, "TAG_EXISTS" in refused.err) == (1, True)
    assert here("tag", "create", "shown", "first", "--move").lines() == ["set tag first: shown@2"]
    (tag,) = json.loads(here("-o", "json", "tag", "list", "shown").out)
    assert (tag["name"], tag["version"], tag["comment"]) == ("first", 2, "")
    assert "tag first" in here("pins", "list").out
    assert here("tag", "drop", "shown", "first", "--dry-run").lines() == ["would drop the tag first of shown@2"]
    assert here("tag", "drop", "shown", "first", "--yes").code == 0
    assert here("tag", "drop", "shown", "first", "--yes").code == 5
    wait_until(lambda: reason_or_none(lambda: client.resolve_version(table_id, version=1)) == "VERSION_RETIRED")


def reason_or_none(call: Callable[[], object]) -> str | None:
    try:
        call()
    except MetaServiceError as error:
        return error.reason
    return None


def test_cursors_on_the_command_line(client: MetaClient, here: Run) -> None:
    table_id = new_table(client, "followed", "24")
    overwrite(client, table_id)
    assert here("cursor", "create", "followed", "etl", "--version", "0").lines() == ["created cursor etl: followed@0"]
    assert here("cursor", "create", "followed", "etl").lines() == ["kept cursor etl: followed@0, as it was"]
    shown = json.loads(here("-o", "json", "pins", "list").out)
    (pinned,) = (each for each in shown if each["table_id"] == table_id)
    assert (pinned["version"], pinned["keep_ms"]) == (0, 7 * 24 * 3_600_000)
    assert here("cursor", "advance", "followed", "etl", "--from", "0", "--to", "1").lines() == [
        "advanced cursor etl: followed@1"
    ]
    moved = here("cursor", "advance", "followed", "etl", "--from", "0", "--to", "1")
    assert (moved.code, "CURSOR_MOVED" in moved.err) == (1, True)
    assert "etl" in here("cursor", "list").out
    assert here("cursor", "drop", "followed", "etl", "--yes").code == 0
    assert here("cursor", "drop", "followed", "etl", "--yes").code == 5
