"""Commits of several tables by Iceberg's clients (`transactions/commit`): all of them take place, or none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from laketx import Lake
from tests.iceberg.servers import Server, served_folder
from tests.iceberg.writers import Request, appended, error_of, head, ids, made, numbers, prepared

pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")


def together(server: Server, requests: Sequence[Request]) -> httpx.Response:
    return server.post("/v1/v2/transactions/commit", body_of(requests))


def body_of(requests: Sequence[Request]) -> dict[str, Any]:
    changes = []
    for one in requests:
        parts = one.path.split("/")
        identifier = {"namespace": [parts[parts.index("namespaces") + 1]], "name": parts[-1]}
        changes.append({"identifier": identifier, **one.body})
    return {"table-changes": changes}


def test_tables_change_together_and_a_repeat_gets_the_first_answer(lake: Lake, server: Server, folder: Path) -> None:
    left, right, third = (made(server, f"together_{name}") for name in ("left", "right", "third"))
    left.append(numbers([1, 2, 3]))
    with third.transaction() as transaction:
        transaction.set_properties({"owner": "ana"})
    requests = [
        prepared(left.refresh(), lambda transaction: transaction.delete("id = 2")),
        appended(right, numbers([7, 8])),
        prepared(third.refresh(), lambda transaction: transaction.set_properties({"owner": "bo"})),
    ]
    assert together(server, requests).status_code == 204
    ours = [lake.table(f"shop.together_{name}") for name in ("left", "right", "third")]
    assert [ids(one) for one in ours[:2]] == [[1, 3], [7, 8]]
    assert ours[2].meta.properties["user.iceberg.owner"] == "bo"
    [first], [second] = ours[0].history(1), ours[1].history(1)
    assert (first.operation, second.operation) == ("MERGE", "INSERT")
    assert first.txn_id == second.txn_id
    right.refresh().append(numbers([9]))
    with served_folder(folder) as other:
        assert [together(each, requests).status_code for each in (server, other)] == [204, 204]
    assert [head(one) for one in ours] == [2, 2, 2]


def test_a_requirement_of_one_table_holds_all(lake: Lake, server: Server) -> None:
    left, right = (made(server, f"held_{name}") for name in ("left", "right"))
    requests = [appended(left, numbers([1])), appended(right, numbers([2]))]
    right.append(numbers([3]))
    status, kind, said = error_of(together(server, requests))
    assert (status, kind) == (409, "CommitFailedException")
    assert "changed" in said
    ours = [lake.table(f"shop.held_{name}") for name in ("left", "right")]
    assert [head(one) for one in ours] == [0, 1]
    again = [requests[0], appended(right.refresh(), numbers([2]))]
    assert together(server, again).status_code == 204
    assert [ids(one.refresh()) for one in ours] == [[1], [2, 3]]


def test_a_table_can_be_required_alone(lake: Lake, server: Server) -> None:
    read, written = (made(server, f"alone_{name}") for name in ("read", "written"))
    required = appended(read, numbers([1]))
    required.body["updates"] = []
    request = appended(written, numbers([1]))
    read.append(numbers([5]))
    assert error_of(together(server, [required, request]))[0] == 409
    assert head(lake.table("shop.alone_written")) == 0


def test_one_of_two_transactions_that_cross_lands(lake: Lake, server: Server, folder: Path) -> None:
    tables = [made(server, f"crossed_{name}") for name in ("left", "right")]
    with served_folder(folder) as other, ThreadPoolExecutor(2) as pool:
        for round_ in range(3):
            jobs = [[appended(one.refresh(), numbers([10 * round_ + at])) for one in tables] for at in range(2)]
            answers = pool.map(lambda one: together(*one), [(server, jobs[0]), (other, jobs[1][::-1])])
            assert sorted(one.status_code for one in answers) == [204, 409]
    ours = [ids(lake.table(f"shop.crossed_{name}")) for name in ("left", "right")]
    assert ours[0] == ours[1]
    assert len(ours[0]) == 3


def test_what_a_transaction_cannot_do_is_refused_in_words(lake: Lake, server: Server) -> None:
    theirs, other = made(server, "refused_here"), made(server, "refused_there")
    request = appended(theirs, numbers([1]))
    fine = appended(other, numbers([1]))
    both = prepared(theirs, rows_and_properties)
    assert "does one of them" in error_of(together(server, [both, fine]))[2]
    new = Request("/v1/v2/namespaces/shop/tables/new", {"requirements": [{"type": "assert-create"}], "updates": []})
    assert "create it first" in error_of(together(server, [new, fine]))[2]
    assert "one commit for each table" in error_of(together(server, [request, request]))[2]
    assert error_of(together(server, [Request("/v1/v2/namespaces/shop/tables/none", request.body), fine]))[:2] == (
        404,
        "NoSuchTableException",
    )
    assert error_of(server.post("/v1/v2/transactions/commit", {"table-changes": [{}]}))[0] == 400
    assert [head(lake.table(f"shop.{name}")) for name in ("refused_here", "refused_there")] == [0, 0]


def rows_and_properties(transaction: Any) -> None:
    transaction.append(numbers([2]))
    transaction.set_properties({"a": "b"})
