"""docs/answers.md says of every call whose answer holds a list how it stays within the bound of an answer."""

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from protos.laketx.v1 import admin_pb2, catalog_pb2, maintenance_pb2, read_pb2, transaction_pb2
from tests.house.answers import documented

FILES = (admin_pb2, catalog_pb2, maintenance_pb2, read_pb2, transaction_pb2)
WAYS = {"pages", "parts", "whole"}


def methods() -> list[MethodDescriptor]:
    services = [service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


def holds_a_list(message: Descriptor, above: frozenset[str] = frozenset()) -> bool:
    """Anywhere in it: a repeated field, a map, or bytes."""
    if message.full_name in above:
        return False
    above |= {message.full_name}
    return any(
        field.is_repeated
        or field.type == field.TYPE_BYTES
        or (field.message_type is not None and holds_a_list(field.message_type, above))
        for field in message.fields
    )


def test_every_call_that_answers_with_a_list_has_its_bound() -> None:
    wanted = {method.name for method in methods() if holds_a_list(method.output_type)}
    assert documented().keys() == wanted, "every such call, and no other, has a row in docs/answers.md"


def test_the_way_is_that_of_the_wire() -> None:
    for method in methods():
        way = documented().get(method.name)
        if way is None:
            continue
        assert way in WAYS
        assert (way == "parts") == method.server_streaming, method.name
        assert (way == "pages") == ("next_page_token" in method.output_type.fields_by_name), method.name
