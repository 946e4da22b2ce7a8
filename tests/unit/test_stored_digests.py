"""Digests of requests are stored with their transactions: a repeat that comes after an upgrade must find its own."""

from __future__ import annotations

from metaservice.rpc.convert import wire_catalog
from protos.laketx.v1 import catalog_pb2


def test_an_alteration_keeps_the_digests_under_which_earlier_releases_stored_it() -> None:
    request = catalog_pb2.AlterTableRequest(
        txn_id="01890000-0000-7000-8000-000000000001",
        table_id="01890000-0000-7000-8000-000000000002",
        commit_message="keep longer",
    )
    request.principal.name = "etl"
    request.alteration.set_properties["data.retain.hours"] = "48"
    request.alteration.comment = "days"
    found = wire_catalog.alter(request)
    assert (found.digest.hex(), found.commit_digest.hex()) == (
        "d1b62bb9a2ef8eca0f253dbbd04312c8",
        "18637f33f1ab99cca103c2144a1cf05e",
    )
