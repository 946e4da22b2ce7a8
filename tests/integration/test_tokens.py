"""Tokens of clients: sent with every call, read again as they change, never shown."""

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaservice.client import Credentials, DeniedError, InvalidError, MetaClient, UnauthenticatedError
from metaservice.client.tokens import expiry_of
from protos.laketx.v1 import access_pb2, catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from tests.forked_programs import run_forked
from tests.integration.service import service, wait_until
from tests.integration.token_door import Door, door

OLD, NEW = "old-secret", "new-secret"
BUDGET_S = 5.0
COLUMNS = [catalog_pb2.Column(name="id", type="bigint")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("tokens") / "db", "--lease-ms", "1000") as (found, _):
        yield found.address


@pytest.fixture
def guarded(running: str) -> Iterator[Door]:
    with door(running, OLD) as found:
        yield found


def client_of(guarded: Door, shown: Credentials, *, use_session: bool = True) -> MetaClient:
    return MetaClient(guarded.address, retry_budget_s=BUDGET_S, credentials=shown, use_session=use_session)


def counter(folder: Path, *lines: str) -> tuple[Credentials, Path]:
    """A command that prints the lines one after the other, the last one again and again; and what counts its runs."""
    runs = folder / "runs"
    (folder / "lines").write_text("\n".join(lines) + "\n")
    command = f'echo >> {runs}; n=$(wc -l < {runs}); sed -n "$n p" {folder}/lines | grep . || tail -1 {folder}/lines'
    return Credentials(token_command=command), runs


def count(runs: Path) -> int:
    return len(runs.read_text().splitlines())


def jwt(left_s: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + left_s}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


def test_every_call_has_the_token(guarded: Door) -> None:
    with client_of(guarded, Credentials(token=OLD)) as client:
        table_id = client.create_table(catalog_pb2.Table(name="every", columns=COLUMNS)).table_id
        client.ping()
        assert [table.name for table in client.list_tables()] != []
        intent = wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
        with client.begin([intent]) as txn:
            txn.abort()
        assert list(client.list_files(table_id)) == []
        watched = client.watch(table_id, after_version=0)
        client.append(table_id, [])
        assert next(watched).version == 1
        watched.close()
    assert {token for _, token in guarded.seen} == {OLD}
    assert {"Session", "Watch", "ListFiles", "CreateTable", "ListTables"} <= set(guarded.methods(OLD))


@pytest.mark.parametrize("use_session", [True, False])
def test_a_wrong_token_is_refused_soon(guarded: Door, use_session: bool) -> None:
    begun_s = time.monotonic()
    for shown in (Credentials(token=NEW), Credentials()):
        with client_of(guarded, shown, use_session=use_session) as client:
            with pytest.raises(UnauthenticatedError) as caught:
                client.get_status()
            with pytest.raises(UnauthenticatedError):
                client.renew("018f0000-0000-7000-8000-000000000000")
        assert caught.value.reason == "TOKEN_EXPIRED"
        assert NEW not in str(caught.value)
    assert time.monotonic() - begun_s < BUDGET_S


def test_a_file_is_read_again_when_it_changes(guarded: Door, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{OLD}\n")
    with client_of(guarded, Credentials(token_file=str(file))) as client:
        client.get_status()
        guarded.taken.add(NEW)
        file.with_suffix(".next").write_text(NEW)
        file.with_suffix(".next").replace(file)
        client.get_status()
        assert guarded.methods(NEW) == ["GetStatus"]
        file.unlink()
        client.get_status()
        assert guarded.methods(NEW) == ["GetStatus"] * 2


def test_a_session_goes_on_with_another_token(guarded: Door, tmp_path: Path) -> None:
    """The calls that waited on the stream that ended are repeated; a transaction that is open stays so."""
    file = tmp_path / "token"
    file.write_text(OLD)
    with client_of(guarded, Credentials(token_file=str(file))) as client:
        table_id = client.create_table(catalog_pb2.Table(name="session", columns=COLUMNS)).table_id
        intent = wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
        with client.begin([intent]) as txn:
            file.write_text(NEW)
            guarded.expire(OLD, NEW)
            time.sleep(1.5)  # longer than its lease
            assert client.ping(b"x") == b"x"
            txn.abort()
    assert set(guarded.methods(NEW)) == {"Session"}


def test_a_session_that_is_refused_is_opened_anew(guarded: Door, tmp_path: Path) -> None:
    shown, runs = counter(tmp_path, "expired", OLD)
    with client_of(guarded, shown) as client:
        assert client.ping(b"x") == b"x"
    assert guarded.seen == [("Session", "expired"), ("Session", OLD)]
    assert count(runs) == 2


def test_a_command_runs_once_more_for_a_call_that_was_refused(guarded: Door, tmp_path: Path) -> None:
    shown, runs = counter(tmp_path, "expired", OLD, NEW)
    with client_of(guarded, shown, use_session=False) as client:
        client.get_status()
        client.get_status()
        assert count(runs) == 2
        guarded.expire(OLD)
        with pytest.raises(UnauthenticatedError):
            client.get_status()
        assert count(runs) == 3
    assert [token for _, token in guarded.seen] == ["expired", OLD, OLD, OLD, NEW]


def test_many_threads_run_the_command_once(guarded: Door, tmp_path: Path) -> None:
    shown, runs = counter(tmp_path, "expired", OLD)
    with client_of(guarded, shown, use_session=False) as client:
        both = threading.Barrier(8)

        def ask() -> None:
            both.wait()
            client.get_status()

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert count(runs) == 2


def test_a_command_runs_again_before_its_token_expires(guarded: Door, tmp_path: Path) -> None:
    short, lasting = jwt(1.5), jwt(3_600)
    guarded.taken |= {short, lasting}
    shown, runs = counter(tmp_path, short, lasting)
    with client_of(guarded, shown, use_session=False) as client:
        client.get_status()
        assert count(runs) == 1

        def is_renewed() -> bool:
            client.get_status()
            return count(runs) == 2

        wait_until(is_renewed)
        client.get_status()
        assert count(runs) == 2
    assert "expired" not in {token for _, token in guarded.seen}
    assert guarded.seen[-1][1] == lasting


def test_a_watch_goes_on_with_another_token(guarded: Door, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(OLD)
    with client_of(guarded, Credentials(token_file=str(file))) as client:
        table_id = client.create_table(catalog_pb2.Table(name="watched", columns=COLUMNS)).table_id
        watched = client.watch(table_id, after_version=0)
        client.append(table_id, [])
        assert next(watched).version == 1
        file.write_text(NEW)
        guarded.expire(OLD, NEW)
        client.append(table_id, [])
        assert next(watched).version == 2
        watched.close()
    assert "Watch" in guarded.methods(NEW)


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (Credentials(token_file="/nowhere/token"), "TOKEN_MISSING"),
        (Credentials(token_command="echo"), "TOKEN_MISSING"),
        (Credentials(token_command="echo two words"), "TOKEN_MISSING"),
        (Credentials(token_command="echo secret; exit 3"), "TOKEN_COMMAND_FAILED"),
        (Credentials(token="two\nlines"), "TOKEN_MISSING"),
    ],
)
def test_a_source_without_a_token(guarded: Door, shown: Credentials, reason: str) -> None:
    with client_of(guarded, shown) as client:
        for call in (client.ping, client.get_status):
            with pytest.raises(DeniedError) as caught:
                call()
            assert caught.value.reason == reason
            assert not {"secret", "words", "lines"} & set(str(caught.value).split())
    assert guarded.seen == []


def test_a_token_goes_to_no_other_machine_as_it_is() -> None:
    for address in ("meta:7070", "laketx://192.0.2.1:7070", "laketx://[2001:db8::1]:7070"):
        with pytest.raises(InvalidError, match="laketxs://") as caught:
            MetaClient(address, credentials=Credentials(token=OLD))
        assert caught.value.reason == "TOKEN_NEEDS_TLS"
        assert OLD not in str(caught.value)
        MetaClient(address, credentials=Credentials(token=OLD, insecure=True)).close()
        MetaClient(address, credentials=Credentials()).close()
    for address in ("localhost:7070", "laketx://[::1]:7070", "unix:/x", "laketxs://meta:7070"):
        MetaClient(address, credentials=Credentials(token=OLD)).close()


def test_nothing_shows_the_token(guarded: Door) -> None:
    shown = Credentials(token=OLD)
    assert OLD not in repr(shown)
    with client_of(guarded, shown) as client:
        client.ping()
        for each in (client, client._tokens, client._retries, client._session):
            assert OLD not in repr(each)
    environment = {**os.environ, "LAKETX_TOKEN": OLD, "LAKETX_SERVER": guarded.address}
    for words in (["--help"], ["status"], ["status", "-o", "json"], ["table", "show", "no.such"], ["txn", "list"]):
        done = run_forked("metaservice.cli", *words, env=environment, timeout=30)
        assert OLD not in done.stdout + done.stderr
    assert {"GetStatus", "GetTable"} <= set(guarded.methods(OLD))


def test_what_the_environment_says() -> None:
    assert Credentials.from_environment({}) == Credentials()
    said = {"LAKETX_CA_FILE": "a", "LAKETX_TOKEN_COMMAND": "c", "LAKETX_INSECURE": "TRUE"}
    assert Credentials.from_environment(said) == Credentials(ca_file="a", token_command="c", insecure=True)


@pytest.mark.parametrize("token", ["", "a.b.c", "a.e30.c", "a.bnVsbA.c", "a.eyJleHAiOiJ4In0.c", "a.b", "…"])
def test_tokens_that_do_not_say_when_they_expire(token: str) -> None:
    assert expiry_of(token) is None


def test_a_token_that_says_when_it_expires() -> None:
    found = expiry_of(jwt(100))
    assert found is not None
    assert 90 < found - time.time() <= 100


def test_a_session_outlives_a_token_that_the_service_revokes(tmp_path: Path) -> None:
    """The service itself refuses the calls of the stream; an open transaction goes on with the next token."""
    file = tmp_path / "token"
    with service(tmp_path / "db", "--tokens", "true", "--lease-ms", "1000") as (running, _):
        owner = MetaClient(f"unix:{tmp_path / 'db' / 'owner.sock'}", credentials=Credentials())
        client = MetaClient(running.address, retry_budget_s=BUDGET_S, credentials=Credentials(token_file=str(file)))
        with owner, client:
            first = owner.create_token("etl")
            file.write_text(first.secret)
            table_id = owner.create_table(catalog_pb2.Table(name="revoked", columns=COLUMNS)).table_id
            owner.grant("user:etl", access_pb2.ROLE_WRITER, table_id=table_id)
            intent = wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
            txn = client.begin([intent])
            second = owner.create_token("etl").secret
            owner.revoke_token(first.token.token_id)
            with pytest.raises(UnauthenticatedError):
                client.ping()
            file.write_text(second)
            time.sleep(1.5)  # longer than its lease: the heartbeat has the next token
            txn.abort()
            assert client.get_transaction(txn.txn_id).state == wire.TRANSACTION_STATE_ABORTED
            assert client.ping(b"x") == b"x"
