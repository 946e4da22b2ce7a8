"""Branches as warehouses of the REST catalog, and clones: read and written by other people's clients, and merged."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from laketx import Branch, Lake, uuid7
from metaservice.client import widen_column
from protos.laketx.v1 import catalog_pb2
from tests.iceberg.servers import Server, catalog_of, served
from tests.iceberg.writers import SCHEMA, appended, attached, error_of, ids, numbers
from tests.integration.callers import append, create, guarded

Rows = dict[int, str]  # notes by id


@contextmanager
def branched(lake: Lake, table: str, *branches: str, rows: int = 3) -> Iterator[list[Branch]]:
    """A table with rows 0, 1, …, and branches that begin then."""
    lake.create_table(f"shop.{table}", "id bigint, note string").append(numbers(list(range(rows))))
    made = [lake.branch(name) for name in branches]
    yield made
    for branch in made:
        branch.drop()


def shown(server: Server, table: str, branch: str = "", form: int = 3) -> list[int]:
    found = catalog_of(server, form, branch).load_table(f"shop.{table}").scan().to_arrow()
    return sorted(found.column("id").to_pylist())


def names(server: Server, branch: str = "", namespace: str = "shop") -> list[str]:
    return [name for _, name in catalog_of(server, 3, branch).list_tables(namespace)]


# -- warehouses --------------------------------------------------------------------------------------------------------


def test_a_branch_is_a_warehouse(lake: Lake, server: Server) -> None:
    lake.branch("Etl")
    prefixes = {"main@Etl": "v3@Etl", "v3@etl": "v3@Etl", "v2@ETL": "v2@Etl", "main": "v3", "v2": "v2", "": "v3"}
    for warehouse, prefix in prefixes.items():
        answer = server.get(f"/v1/config?warehouse={warehouse}")
        assert answer.json()["overrides"] == {"prefix": prefix}
    lake.client.drop_branch("Etl")


@pytest.mark.parametrize("path", ["config?warehouse=main@none", "v3@none/namespaces", "v2@none/namespaces/shop/tables"])
def test_a_branch_that_is_not_there_is_named(server: Server, path: str) -> None:
    status, _, said = error_of(server.get(f"/v1/{path}"))
    assert (status, "none" in said, "branch" in said) == (404, True, True)


def test_a_table_on_a_branch_that_ended_is_not_there(lake: Lake, server: Server) -> None:
    with branched(lake, "ended", "gone"):
        request = appended(catalog_of(server, 2, "gone").load_table("shop.ended"), numbers([9]), branch="gone")
    for answer in (server.get("/v1/v2@gone/namespaces/shop/tables/ended"), request.send(server)):
        status, kind, said = error_of(answer)
        assert (status, kind, "gone" in said) == (404, "NoSuchTableException", True)
    assert shown(server, "ended") == [0, 1, 2]


@pytest.mark.parametrize("warehouse", ["main@", "v4", "v4@etl", "@etl"])
def test_other_warehouses_are_refused(server: Server, warehouse: str) -> None:
    assert server.get(f"/v1/config?warehouse={warehouse}").status_code == 400
    assert server.get(f"/v1/{warehouse}/namespaces").status_code == 400


@pytest.mark.parametrize("prefix", ["v3", "v3@names"])
def test_a_table_s_name_says_no_branch(lake: Lake, server: Server, prefix: str) -> None:
    tables, column = f"/v1/{prefix}/namespaces/shop/tables", {"id": 1, "name": "id", "type": "long", "required": False}
    with branched(lake, f"named_{len(prefix)}", "names", "others") as (branch, _):
        branch.create_table("shop.made", "id bigint")
        for name in (f"named_{len(prefix)}@names", f"named_{len(prefix)}@others", "made@names"):
            assert error_of(server.get(f"{tables}/{name}"))[:2] == (404, "NoSuchTableException")
        body = {"name": "new@names", "schema": {"type": "struct", "fields": [column]}}
        status, _, said = error_of(server.post(tables, body))
        assert (status, "warehouse of that branch" in said) == (400, True)
        assert not any("@" in name for name in names(server))


def test_a_branch_lists_its_tables(lake: Lake, server: Server) -> None:
    lake.client.create_namespace("lists")
    for name in ("kept", "dropped", "looked_at", "again"):
        lake.create_table(f"lists.{name}", "id bigint").append([{"id": 1}])
    lake.create_table("loose", "id bigint")
    brings = lake.branch("brings")
    brings.create_table("lists.brought", "id bigint")
    branch = lake.branch("listed")
    brings.merge()
    lake.create_table("lists.later", "id bigint")
    child = lake.branch("child", parent="listed")
    branch.create_table("lists.made", "id bigint")
    branch.create_table("made_loose", "id bigint")
    branch.table("lists.looked_at").append([{"id": 2}])
    for name in ("dropped", "again"):
        branch.drop_table(f"lists.{name}")
    branch.create_table("lists.again", "id bigint")
    lake.drop_table("lists.looked_at")
    assert names(server, "listed", "lists") == ["again", "kept", "looked_at", "made"]
    assert names(server, "", "lists") == ["again", "brought", "dropped", "kept", "later"]
    assert {"loose", "made_loose"} <= set(names(server, "listed", "default"))
    assert "made_loose" not in names(server, "", "default")
    for name in names(server, "child", "lists"):
        assert catalog_of(server, 3, "child").table_exists(f"lists.{name}")
    assert not catalog_of(server, 3, "listed").table_exists("lists.later")
    child.drop()
    branch.drop()


def test_a_table_that_main_can_t_show_any_more_is_listed_on_a_branch(lake: Lake, server: Server) -> None:
    lake.client.create_namespace("widened")
    table = lake.create_table("widened.t", "id int, n int", properties={"write.inline.rows": "0"})
    table.append(pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([2], pa.int32())}))
    branch = lake.branch("narrow")
    table.view.client.alter_columns(table.table_id, widen_column("n", "double"))
    assert names(server, "", "widened") == []
    assert names(server, "narrow", "widened") == ["t"]
    branch.drop()


def test_namespaces_and_views_of_a_branch(lake: Lake, server: Server) -> None:
    column = catalog_pb2.ViewColumn(name="total", type="BIGINT", nullable=True)
    lake.client.create_namespace("named")
    view = catalog_pb2.View(name="named.v", text="SELECT 1", columns=[column], query_columns=["total"])
    lake.client.put_view(view)
    branch = lake.branch("named")
    catalog = catalog_of(server, 3, "named")
    catalog.create_namespace("fresh", {"a": "b"})
    assert catalog.load_namespace_properties("fresh") == {"a": "b"}
    assert ("fresh",) in catalog.list_namespaces()
    assert ("fresh",) not in catalog_of(server, 3).list_namespaces()
    catalog.create_table("fresh.t", SCHEMA)
    assert names(server, "named", "fresh") == ["t"]
    again = server.post("/v1/v3@named/namespaces", {"namespace": ["named"]})
    assert error_of(again)[:2] == (409, "AlreadyExistsException")
    assert server.post("/v1/v3@named/namespaces/named/properties", {"updates": {"a": "c"}}).status_code == 200
    full = server.delete("/v1/v3@named/namespaces/fresh")
    assert error_of(full)[:2] == (409, "NamespaceNotEmptyException")
    body = server.get("/v1/v3@named/namespaces/named/views/v").json()["metadata"]
    version = body["versions"][0] | {"timestamp-ms": 1}
    made = {"name": "w", "schema": body["schemas"][0], "view-version": version, "properties": {}}
    assert server.post("/v1/v3@named/namespaces/fresh/views", made).status_code == 200
    assert server.delete("/v1/v3@named/namespaces/named/views/v").status_code == 204
    listed = server.get("/v1/v3@named/namespaces/fresh/views").json()["identifiers"]
    assert listed == [{"namespace": ["fresh"], "name": "w"}]
    assert error_of(server.get("/v1/v3@named/namespaces/named/views/v"))[0] == 404
    assert server.get("/v1/v3/namespaces/named/views/v").status_code == 200
    branch.merge()
    assert server.get("/v1/v3/namespaces/fresh/views/w").status_code == 200
    assert error_of(server.get("/v1/v3/namespaces/named/views/v"))[0] == 404
    assert catalog_of(server, 3).load_namespace_properties("named") == {"a": "c"}


# -- reads and writes --------------------------------------------------------------------------------------------------


def test_pyiceberg_writes_on_a_branch(lake: Lake, server: Server) -> None:
    with branched(lake, "berg", "berg"):
        catalog = catalog_of(server, 2, "berg")
        table = catalog.load_table("shop.berg")
        table.append(numbers([10, 11]))
        table.delete("id = 0")
        table.overwrite(numbers([1], note=["new"]), "id = 1")
        types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")
        lake.table("shop.berg").add_columns("late int")
        with table.refresh().transaction() as both:  # the file has the column by the id that it gets
            both.update_schema().add_column("mark", types.IntegerType()).commit()
            both.append(numbers([12]).append_column("mark", pa.array([5], pa.int32())))
        made = catalog.create_table("shop.berg_made", SCHEMA)
        made.append(numbers([7]))
        staged = catalog.create_table_transaction("shop.berg_staged", SCHEMA)
        staged.append(numbers([8]))
        staged.commit_transaction()
        catalog.load_table("shop.berg_staged").append(numbers([9]))
        catalog.create_table("shop.berg_gone", SCHEMA)
        catalog.drop_table("shop.berg_gone")
        assert shown(server, "berg", "berg") == [1, 2, 10, 11, 12] == ids(lake.table("shop.berg@berg"))
        assert shown(server, "berg") == [0, 1, 2] == ids(lake.table("shop.berg"))
        assert {"berg", "berg_made", "berg_staged"} <= set(names(server, "berg"))
        assert not {"berg_made", "berg_staged", "berg_gone"} & set(names(server))
        with pytest.raises(Exception, match="RENAME_ON_BRANCH"):
            catalog.rename_table("shop.berg_made", "shop.berg_renamed")
        lake.client.merge_branch("berg")
    assert shown(server, "berg") == [1, 2, 10, 11, 12]
    merged = catalog_of(server, 2).load_table("shop.berg").scan().to_arrow()
    assert merged.column("mark").to_pylist().count(5) == 1
    assert merged.column("late").null_count == merged.num_rows
    assert (shown(server, "berg_made"), shown(server, "berg_staged")) == ([7], [8, 9])


def test_duckdb_writes_on_a_branch(lake: Lake, server: Server) -> None:
    with branched(lake, "duck", "duck"):
        with attached(server, branch="duck") as duck:
            for statement in (
                "INSERT INTO lake.shop.duck VALUES (20, 'd'), (21, 'd')",
                "DELETE FROM lake.shop.duck WHERE id = 0",
                "UPDATE lake.shop.duck SET note = 'u' WHERE id = 1",
                "CREATE TABLE lake.shop.duck_made AS SELECT 5::BIGINT AS id, 'x' AS note",
                "INSERT INTO lake.shop.duck_made VALUES (6, 'y')",
            ):
                duck.execute(statement)
            found = duck.execute("SELECT id, note FROM lake.shop.duck ORDER BY id").fetchall()
            assert found == [(1, "u"), (2, "n2"), (20, "d"), (21, "d")]
        assert shown(server, "duck") == [0, 1, 2]
        lake.client.merge_branch("duck")
    with attached(server) as duck:
        assert duck.execute("SELECT id, note FROM lake.shop.duck ORDER BY id").fetchall() == found
        assert duck.execute("SELECT id FROM lake.shop.duck_made ORDER BY id").fetchall() == [(5,), (6,)]


def test_a_branch_in_one_transaction_over_several_tables(lake: Lake, server: Server) -> None:
    with branched(lake, "one", "both"), branched(lake, "two"):
        catalog = catalog_of(server, 2, "both")
        requests = [appended(catalog.load_table(f"shop.{name}"), numbers([9]), branch="both") for name in ("one",)]
        identified = [one.body | {"identifier": {"namespace": ["shop"], "name": "one"}} for one in requests]
        late = appended(catalog_of(server, 2).load_table("shop.two"), numbers([9]))
        identified.append(late.body | {"identifier": {"namespace": ["shop"], "name": "two"}})
        refused = server.post("/v1/v2@both/transactions/commit", {"table-changes": identified})
        assert error_of(refused)[0] == 404  # the second table came after the branch
        assert server.post("/v1/v2@both/transactions/commit", {"table-changes": identified[:1]}).status_code == 204
        assert (shown(server, "one", "both"), shown(server, "one")) == ([0, 1, 2, 9], [0, 1, 2])


def test_a_commit_is_refused_after_the_branch_left_anew(lake: Lake, server: Server) -> None:
    with branched(lake, "anew", "anew") as (branch,):
        catalog_of(server, 2, "anew").load_table("shop.anew").append(numbers([3]))
        table = catalog_of(server, 2, "anew").load_table("shop.anew")
        late = appended(table, numbers([4]), branch="anew")
        late.body["requirements"].append({"type": "assert-table-uuid", "uuid": str(table.metadata.table_uuid)})
        branch.merge(keep=True)
        assert error_of(late.send(server))[:2] == (409, "CommitFailedException")
        catalog_of(server, 2, "anew").load_table("shop.anew").append(numbers([5]))
        branch.merge(keep=True)
        assert shown(server, "anew") == [0, 1, 2, 3, 5] == shown(server, "anew", "anew")


def test_a_repeated_commit_is_committed_once_on_its_branch(lake: Lake, server: Server) -> None:
    """The same files and the same snapshot id, to two forks of one table."""
    with branched(lake, "twice", "left", "right"):
        requests = [
            appended(catalog_of(server, 2, name).load_table("shop.twice"), numbers([number]), branch=name)
            for number, name in enumerate(("left", "right"), start=10)
        ]
        assert [one.send(server).status_code for one in requests * 2] == [200] * 4
        assert [shown(server, "twice", name) for name in ("left", "right")] == [[0, 1, 2, 10], [0, 1, 2, 11]]


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize(("kind", "left"), [("plain", [1, 3]), ("key", [0, 1, 2, 3])])
def test_rows_that_are_hidden_in_the_lake_or_on_a_branch(
    lake: Lake, server: Server, form: int, kind: str, left: list[int]
) -> None:
    """LakeTX changes rows on both sides, in a table with a key and in one without, inlined and in files."""
    name, keyed = f"hides_{kind}_{form}", kind == "key"
    table = lake.create_table(f"shop.{name}", "id bigint, note string", primary_key=["id"] if keyed else [])
    for batch in ([0, 1], range(2, 2_000)):
        (table.upsert if keyed else table.append)(numbers([*batch]))
    branch = lake.branch(name)
    table.delete("id = 0")
    fork = branch.table(f"shop.{name}")
    fork.delete("id >= 4")
    if keyed:
        fork.upsert(numbers([2]))
    else:
        fork.delete("id = 0 OR id = 2")
    planned = catalog_of(server, form, branch.name, **{"scan-planning-mode": "server"}).load_table(f"shop.{name}")
    assert sorted(planned.scan().to_arrow().column("id").to_pylist()) == left == shown(server, name, branch.name, form)
    with attached(server, form, branch=branch.name) as duck:
        assert duck.execute(f"SELECT id FROM lake.shop.{name} ORDER BY id").fetchall() == [(one,) for one in left]
    assert shown(server, name, form=form) == list(range(1, 2_000))
    branch.drop()


# -- merges ------------------------------------------------------------------------------------------------------------


def as_rows(lake: Lake, table: str) -> Rows:
    found = lake.table(table).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["note"] for row in found}


class Author:
    """Random changes of one table on one branch by DuckDB or pyiceberg, and what they leave by a dict."""

    def __init__(self, server: Server, lake: Lake, chance: random.Random, branch: str, begin: int) -> None:
        self.server, self.lake, self.chance, self.branch = server, lake, chance, branch
        self.next = begin
        self.added: Rows = {}

    def step(self, table: str, rows: Rows) -> None:
        """One commit; `rows` is what the branch shows."""
        if self.chance.random() < 0.4:
            self.delete(table, rows)
        else:
            self.insert(table, rows)

    def insert(self, table: str, rows: Rows) -> None:
        fresh = {self.next + at: f"{self.branch}{self.next + at}" for at in range(self.chance.randint(1, 4))}
        self.next += len(fresh)
        if self.chance.random() < 0.5:
            values = ", ".join(f"({number}, '{note}')" for number, note in fresh.items())
            self.by_duckdb(f"INSERT INTO lake.shop.{table} VALUES {values}")
        else:
            catalog = catalog_of(self.server, 2, self.branch)
            catalog.load_table(f"shop.{table}").append(numbers([*fresh], note=[*fresh.values()]))
        rows |= fresh
        self.added |= fresh

    def delete(self, table: str, rows: Rows) -> None:
        """Rows of this author alone: deletes of files that both have would conflict."""
        if self.added:
            number = self.chance.choice([*self.added])
            if self.chance.random() < 0.5:
                self.by_duckdb(f"DELETE FROM lake.shop.{table} WHERE id = {number}")
            else:
                catalog_of(self.server, 2, self.branch).load_table(f"shop.{table}").delete(f"id = {number}")
            del rows[number], self.added[number]

    def by_duckdb(self, statement: str) -> None:
        with attached(self.server, self.chance.choice([2, 3]), branch=self.branch) as duck:
            duck.execute(statement)


def play(lake: Lake, server: Server, seed: int, steps: int) -> tuple[Rows, Rows, int]:
    """Two clients on two branches of one table; returns what main has then, what it must have, and how many merged."""
    chance, table = random.Random(seed), f"merged_{seed}"
    with branched(lake, table, f"a{seed}", f"b{seed}"):
        base = as_rows(lake, f"shop.{table}")
        authors = [Author(server, lake, chance, f"{side}{seed}", 100 * at) for at, side in enumerate("ab", start=1)]
        by_branch: Mapping[str, Rows] = {one.branch: dict(base) for one in authors}
        for _ in range(steps):
            author = chance.choice(authors)
            rows = by_branch[author.branch]
            author.step(table, rows)
            assert as_rows(lake, f"shop.{table}@{author.branch}") == rows
            assert shown(server, table, author.branch, chance.choice([2, 3])) == sorted(rows)
        assert as_rows(lake, f"shop.{table}") == base
        expected, merged = dict(base), 0
        for author in authors:
            answer = lake.client.merge_branch(author.branch)
            lost = [one.conflict.message or one.message for one in answer.tables]
            if not answer.merged:  # deletes lose to what the first branch brought: by the rules, and said in words
                assert all(lost)
                assert author is authors[1]
                continue
            expected |= author.added
            merged += 1
    assert shown(server, table) == shown(server, table, form=2) == sorted(expected)
    return as_rows(lake, f"shop.{table}"), expected, merged


def test_two_clients_on_two_branches_are_merged(lake: Lake, server: Server) -> None:
    left, expected, merged = play(lake, server, seed=1, steps=6)
    assert (left, merged) == (expected, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_random_clients_on_two_branches_are_merged(lake: Lake, server: Server, seed: int) -> None:
    left, expected, merged = play(lake, server, seed, steps=16)
    assert left == expected
    assert merged


# -- clones ------------------------------------------------------------------------------------------------------------


def test_a_clone_is_a_table_of_the_main_warehouse(lake: Lake, server: Server) -> None:
    with branched(lake, "origin"):
        clone = lake.clone_table("shop.origin", "shop.clone", version=1)
        table = catalog_of(server, 2).load_table("shop.clone")
        table.append(numbers([30]))
        table.delete("id = 1")
        with attached(server) as duck:
            duck.execute("INSERT INTO lake.shop.clone VALUES (31, 'd')")
        assert "clone" in names(server)
        assert shown(server, "clone") == [0, 2, 30, 31] == ids(clone)
        assert shown(server, "origin") == [0, 1, 2]


def test_a_dropped_clone_is_registered_by_its_last_metadata(lake: Lake, server: Server) -> None:
    with branched(lake, "source"):
        lake.clone_table("shop.source", "shop.registered")
        catalog = catalog_of(server, 2)
        table = catalog.load_table("shop.registered")
        table.append(numbers([3]))
        place = table.refresh().metadata_location
        catalog.drop_table("shop.registered")
        assert not catalog.table_exists("shop.registered")
        catalog.register_table("shop.registered", place)
        assert shown(server, "registered") == [0, 1, 2, 3]


# -- rights ------------------------------------------------------------------------------------------------------------


def test_a_caller_without_rights_sees_nothing_of_a_branch_s_tables(tmp_path: Path) -> None:
    with guarded(tmp_path / "data") as company:
        owner, address = company.owner, company.service.address
        owner.call("CatalogService/CreateNamespace", name="sales")
        seen, _ = (create(owner, f"sales.{name}") for name in ("seen", "hidden"))
        company.grant("user:ana", "reader", table_id=seen)
        for name, parent in (("b", ""), ("c", "b")):
            owner.call("CatalogService/CreateBranch", request_id=uuid7(), name=name, parent=parent)
        create(owner, "sales.made@b")
        owner.call("CatalogService/CreateBranch", request_id=uuid7(), name="d", parent="b")
        company.grant("user:root", "admin")
        root = company.caller(company.token("root"), (("x-laketx-features", "forks"),))
        append(root, root.call("CatalogService/GetTable", name="sales.hidden@b").table.table_id, ["forks"])
        words = ["--server", address, "iceberg", "serve", "--listen", "127.0.0.1:0", "--warehouse", str(tmp_path)]
        with served(*words) as server:
            ana, bo = company.token("ana"), company.token("bo")
            for branch in ("b", "c", "d"):
                catalog = catalog_of(server, 3, branch, token=ana)
                assert catalog.list_tables("sales") == [("sales", "seen")]
                assert catalog.load_table("sales.seen").scan().to_arrow().num_rows == 0
                assert not any(catalog.table_exists(f"sales.{name}") for name in ("hidden", "made"))
                nobody = catalog_of(server, 3, branch, token=bo)
                assert not any(nobody.table_exists(f"sales.{name}") for name in ("seen", "hidden", "made"))
            change = {"authorization": f"Bearer {ana}"}
            path = "/v1/v3@b/namespaces/sales/tables/seen"
            assert server.delete(path, headers=change).status_code == 403
