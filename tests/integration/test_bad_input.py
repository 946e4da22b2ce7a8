"""Whatever is sent, the service refuses it with a reason, lives on, and its store is as before."""

import math
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from protos.laketx.v1 import admin_pb2, catalog_pb2, common_pb2, maintenance_pb2, read_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.service import TIMEOUT_S, Service, Stubs, code_of, data_file, day, reason_of, service

CODE = grpc.StatusCode
REFUSALS = {
    CODE.INVALID_ARGUMENT,
    CODE.NOT_FOUND,
    CODE.ALREADY_EXISTS,
    CODE.FAILED_PRECONDITION,
    CODE.ABORTED,
    CODE.OUT_OF_RANGE,
    CODE.RESOURCE_EXHAUSTED,
}
IMPLEMENTED = {
    "TransactionService": None,
    "CatalogService": None,
    "ReadService": None,
    "MaintenanceService": None,
    "AdminService": {"ListPins", "GetStatus", "Backup", "Check", "ReleasePurge", "ConfirmClock", "StepDown"},
}
METHODS: list[MethodDescriptor] = [
    method
    for module in (transaction_pb2, catalog_pb2, read_pb2, maintenance_pb2, admin_pb2)
    for service_ in module.DESCRIPTOR.services_by_name.values()
    for method in service_.methods
]


def is_built(method: MethodDescriptor) -> bool:
    built = IMPLEMENTED[method.containing_service.name]
    return built is None or method.name in built


BUILT = [each for each in METHODS if is_built(each) and each.name != "Session"]
DEPTH_MAX = 5
INTEGERS = [0, 1, 2, 7, -1, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1]
BITS = {"INT32": (-(2**31), 2**31 - 1), "INT64": (-(2**63), 2**63 - 1), "UINT64": (0, 2**64 - 1)}
NUMBERS = {
    FieldDescriptor.TYPE_INT32: BITS["INT32"],
    FieldDescriptor.TYPE_SINT32: BITS["INT32"],
    FieldDescriptor.TYPE_INT64: BITS["INT64"],
    FieldDescriptor.TYPE_SINT64: BITS["INT64"],
    FieldDescriptor.TYPE_SFIXED64: BITS["INT64"],
    FieldDescriptor.TYPE_UINT64: BITS["UINT64"],
}
REALS = [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324]


class World:
    """A service with tables and transactions that requests can name, and how its store looks."""

    def __init__(self, server: Service, stubs: Stubs) -> None:
        self.server = server
        self.stubs = stubs
        self.append = stubs.create("append_table", profile="delta_serializable")
        self.keyed = stubs.create("keyed_table", keyed=True)
        stubs.append(self.append)
        self.open = stubs.begin(self.append, self.keyed)
        stubs.register(self.open, self.append, data_file(self.open, "a"))
        self.files = [entry.file.path for entry in stubs.list_files(self.append)]
        self.ids = [self.append, self.keyed, self.open]
        self.texts = ["", "id", "day", "append_table", "bigint", "delta_serializable", "a.b.c", "é" * 3, "\x00", "../x"]
        self.texts += [
            f"{self.open}/f",
            f"{self.open}/../f",
            *self.files,
            "x" * 5_000,
            "9" * 5_000,
            "urn:uuid:",
            "MA==",
        ]

    def state(self) -> tuple[object, ...]:
        versions = [self.stubs.list_versions(each) for each in (self.append, self.keyed)]
        return versions, [self.stubs.list_files(each) for each in (self.append, self.keyed)], self.stubs.list_txns()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with service(tmp_path_factory.mktemp("bad") / "db", "--lease-ms", "600000") as (server, stubs):
        yield World(server, stubs)


class Maker:
    """Random messages out of descriptors, with a liking for what nearly fits."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self._chance = chance
        self._world = world

    def message(self, message: Any, depth: int = 0) -> Any:
        for field in message.DESCRIPTOR.fields:
            if self._chance.random() < (0.25 if depth else 0.1) or depth > DEPTH_MAX:
                continue
            self._set(message, field, depth)
        return message

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(self._chance.choice([1, 2, 70])):
                getattr(message, field.name)[self._text(field) + str(self._chance.random())[:4]] = self._text(field)
        elif field.is_repeated:
            for _ in range(self._chance.choice([0, 1, 1, 2, 3])):
                if field.message_type is not None:
                    self.message(getattr(message, field.name).add(), depth + 1)
                else:
                    getattr(message, field.name).append(self._scalar(field))
        elif field.message_type is not None:
            self._one(getattr(message, field.name), depth)
        else:
            setattr(message, field.name, self._scalar(field))

    def _one(self, message: Any, depth: int) -> None:
        message.SetInParent()
        if isinstance(message, common_pb2.Partition) and self._chance.random() < 0.7:
            message.CopyFrom(day(self._chance.choice(["1", "2", "", "/", "é"])))
        else:
            self.message(message, depth + 1)

    def _scalar(self, field: FieldDescriptor) -> Any:
        chance = self._chance
        if field.type in NUMBERS:
            low, high = NUMBERS[field.type]
            return chance.choice([each for each in INTEGERS if low <= each <= high])
        if field.type == FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        if field.type == FieldDescriptor.TYPE_ENUM:
            return chance.choice([*range(14), 99, -1, 2**31 - 1])
        if field.type == FieldDescriptor.TYPE_DOUBLE:
            return chance.choice(REALS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._bitmap() if field.name == "bitmap" else chance.randbytes(16)
        return self._text(field)

    def _bitmap(self) -> bytes:
        raw = bytearray(BitMap64([1, 2, self._chance.choice([2**32, 2**63, 2**64 - 1])]).serialize())
        raw[self._chance.randrange(len(raw))] = self._chance.randrange(256)
        return self._chance.choice([bytes(raw), bytes(raw[:-3]), self._chance.randbytes(64), b"\x00"])

    def _text(self, field: FieldDescriptor) -> str:
        chance, world = self._chance, self._world
        if field.name in ("txn_id", "adopt_from", "table_id", "request_id") and chance.random() < 0.8:
            likely = new_uuid7() if field.name != "table_id" else world.append
            return chance.choice([*world.ids, likely, likely, likely.upper(), "nonsense"])
        if field.name == "column" and chance.random() < 0.6:
            return chance.choice(["day", "id"])
        return chance.choice(world.texts)


def call_of(world: World, method: MethodDescriptor) -> Callable[[Any], list[Any]]:
    """Sends one request or its bytes, to RegisterFiles also many, and gives all answers."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    give = GetMessageClass(method.output_type).FromString

    def encode(request: Any) -> bytes:
        return request.SerializeToString() if isinstance(request, Message) else bytes(request)

    channel = world.stubs.channel
    if method.client_streaming and method.server_streaming:
        both = channel.stream_stream(path, encode, give)
        return lambda request: list(both(iter([request]), timeout=TIMEOUT_S))
    if method.client_streaming:
        many = channel.stream_unary(path, encode, give)
        return lambda request: [many(request if isinstance(request, Iterator) else iter([request]), timeout=TIMEOUT_S)]
    if method.server_streaming:
        stream = channel.unary_stream(path, encode, give)
        if method.name == "Watch":  # it has no end
            return lambda request: list(islice(stream(request, timeout=TIMEOUT_S), 1))
        return lambda request: list(stream(request, timeout=TIMEOUT_S))
    single = channel.unary_unary(path, encode, give)
    return lambda request: [single(request, timeout=TIMEOUT_S)]


def send(world: World, method: MethodDescriptor, request: object) -> bool:
    """Whether it was taken; what is refused is refused well."""
    try:
        call_of(world, method)(request)
    except grpc.RpcError as error:
        code, reason = code_of(error), reason_of(error)
        if code is CODE.UNIMPLEMENTED and method.name == "ResolveVersion":  # commits_ago is not built yet
            return False
        said = f"{method.name}: {code} {reason}\n{request!s:.3000}\n{world.server.said()}"
        assert code in REFUSALS, said
        assert reason, said
        return False
    return True


@pytest.mark.parametrize("method", BUILT, ids=lambda method: method.name)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(seed=st.integers(0, 2**32))
def test_random_requests_are_refused_with_a_reason(world: World, method: MethodDescriptor, seed: int) -> None:
    check_random_request(world, method, seed)


@pytest.mark.long
@pytest.mark.parametrize("method", BUILT, ids=lambda method: method.name)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(seed=st.integers(0, 2**32))
def test_many_random_requests_are_refused_with_a_reason(world: World, method: MethodDescriptor, seed: int) -> None:
    check_random_request(world, method, seed)


def check_random_request(world: World, method: MethodDescriptor, seed: int) -> None:
    request = Maker(random.Random(seed), world).message(GetMessageClass(method.input_type)())
    if method.name in ("DropTable", "AbortTransaction"):
        for field in ("table_id", "txn_id"):
            if field in method.input_type.fields_by_name and getattr(request, field).lower() in world.ids:
                setattr(request, field, new_uuid7())
    before = world.state()
    taken = send(world, method, request)
    world.server.running()
    assert taken or world.state() == before


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), raw=st.binary(max_size=200))
def test_a_session_survives_random_frames(world: World, seed: int, raw: bytes) -> None:
    session = next(each for each in METHODS if each.name == "Session")
    frame = Maker(random.Random(seed), world).message(transaction_pb2.SessionRequest())
    for call in frame.calls:
        if call.WhichOneof("call") == "abort" and call.abort.txn_id in world.ids:
            call.abort.txn_id = new_uuid7()
    call_of(world, session)(frame)
    send(world, session, raw)
    world.server.running()
    assert world.state()


@pytest.mark.parametrize("method", BUILT, ids=lambda method: method.name)
def test_bytes_that_are_no_message_change_nothing(world: World, method: MethodDescriptor) -> None:
    before = world.state()
    for raw in (b"\xff" * 40, b"\x0a\xff", random.Random(1).randbytes(100)):
        assert unreadable(world, method, raw)
    world.server.running()
    assert world.state() == before


def unreadable(world: World, method: MethodDescriptor, raw: bytes) -> bool:
    with pytest.raises(grpc.RpcError) as caught:
        call_of(world, method)(raw)
    return (code_of(caught.value), reason_of(caught.value)) == (CODE.INVALID_ARGUMENT, "MESSAGE_UNREADABLE")


def test_a_stream_that_turns_unreadable_is_refused(world: World) -> None:
    good = transaction_pb2.RegisterFilesRequest(
        txn_id=world.open, table_id=world.append, files=[data_file(world.open, "a")]
    )
    parts = iter([good.SerializeToString(), b"\xff" * 40])
    register = next(each for each in METHODS if each.name == "RegisterFiles")
    with pytest.raises(grpc.RpcError) as caught:
        call_of(world, register)(parts)
    assert (code_of(caught.value), reason_of(caught.value)) == (CODE.INVALID_ARGUMENT, "MESSAGE_UNREADABLE")
    world.server.running()


def test_a_session_answers_what_came_before_an_unreadable_frame(world: World) -> None:
    call = transaction_pb2.SessionCall(call_id=7, ping=transaction_pb2.PingRequest(payload=b"x"))
    frames = iter([transaction_pb2.SessionRequest(calls=[call]).SerializeToString(), b"\xff" * 40])
    session: Any = world.stubs.channel.stream_stream(
        "/laketx.v1.TransactionService/Session", None, transaction_pb2.SessionResponse.FromString
    )
    answers = session(frames, timeout=TIMEOUT_S)
    assert [reply.ping.payload for reply in next(answers).replies] == [b"x"]
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert (code_of(caught.value), reason_of(caught.value)) == (CODE.INVALID_ARGUMENT, "MESSAGE_UNREADABLE")


@pytest.mark.parametrize(("rows", "tombstones"), [(10, 11), (10, -1)])
def test_more_tombstones_than_rows_are_refused(world: World, rows: int, tombstones: int) -> None:
    txn_id, before = world.stubs.begin(world.keyed), world.state()
    file = data_file(txn_id, kind=common_pb2.FILE_KIND_DELTA)
    file.rows, file.tombstones = rows, tombstones
    with pytest.raises(grpc.RpcError) as caught:
        world.stubs.register(txn_id, world.keyed, file)
    assert (code_of(caught.value), reason_of(caught.value)) == (CODE.INVALID_ARGUMENT, "TOMBSTONES_INVALID")
    assert world.state() == before


def test_predicates_have_a_depth(world: World) -> None:
    predicate = common_pb2.Predicate(literal=True)
    for _ in range(80):
        predicate = common_pb2.Predicate(negation=predicate)
    before = world.state()
    with pytest.raises(grpc.RpcError) as caught:
        world.stubs.begin(world.append, reads=[common_pb2.Read(predicate=predicate)])
    assert (code_of(caught.value), reason_of(caught.value)) == (CODE.INVALID_ARGUMENT, "PREDICATE_TOO_LARGE")
    assert world.state() == before


def test_predicates_beyond_what_protobuf_nests_are_unreadable(world: World) -> None:
    begin = next(each for each in METHODS if each.name == "BeginTransaction")
    intents = begin.input_type.fields_by_name["tables"].number
    reads, predicate = (message.fields_by_name[name].number for message, name in NESTING)
    negation = common_pb2.Predicate.DESCRIPTOR.fields_by_name["negation"].number
    raw = common_pb2.Predicate(literal=True).SerializeToString()
    for number in [*[negation] * 200, predicate, reads, intents]:
        raw = bytes([number << 3 | 2]) + varint(len(raw)) + raw
    before = world.state()
    assert unreadable(world, begin, raw)
    assert world.state() == before


NESTING = [(transaction_pb2.TableIntent.DESCRIPTOR, "reads"), (common_pb2.Read.DESCRIPTOR, "predicate")]


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def test_a_page_token_of_many_digits_is_refused(world: World) -> None:
    token = "OTk5" * 2_000
    request = read_pb2.ListVersionsRequest(table_id=world.append, page_token=token)
    method = next(each for each in METHODS if each.name == "ListVersions")
    assert not send(world, method, request)
    world.server.running()


def check_alone(folder: Path, act: Callable[[Stubs, str], None]) -> None:
    """In a service of its own, which may end by it."""
    with service(folder / "db") as (server, stubs):
        table_id = stubs.create("t", profile="delta_write_serializable")
        try:
            act(stubs, table_id)
        except grpc.RpcError as error:
            code, reason = code_of(error), reason_of(error)
            assert code in REFUSALS, server.said()
            assert reason
        server.running()
        assert stubs.list_versions(table_id)


def test_rows_beyond_all_row_ids_are_refused(tmp_path: Path) -> None:
    def act(stubs: Stubs, table_id: str) -> None:
        txn = new_uuid7()
        found = [data_file(txn, str(number)) for number in range(1_100)]
        for each in found:
            each.rows = each.bytes = 2**53
        request = transaction_pb2.AppendRequest(txn_id=txn, table_id=table_id, files=found)
        stubs.txns.Append(request, timeout=TIMEOUT_S)

    check_alone(tmp_path, act)


def test_a_delete_set_removed_twice_is_a_lost_race(tmp_path: Path) -> None:
    def act(stubs: Stubs, table_id: str) -> None:
        first = new_uuid7()
        stubs.append(table_id, first)
        hide = stubs.begin(table_id, operation=common_pb2.OPERATION_DELETE)
        hidden = common_pb2.DeleteSet(path=f"{hide}/ds", partition=day(), bitmap=BitMap64([1]).serialize())
        hidden.touches.append(f"{first}/f")
        stubs.commit(hide, common_pb2.Change(table_id=table_id, delete_sets=[hidden], changes_data=True))
        both = [stubs.begin(table_id, operation=common_pb2.OPERATION_CUSTOM) for _ in range(2)]
        remove = common_pb2.FileRef(path=f"{hide}/ds", partition=day())
        for txn in both:
            stubs.commit(txn, common_pb2.Change(table_id=table_id, removes=[remove]))

    check_alone(tmp_path, act)
