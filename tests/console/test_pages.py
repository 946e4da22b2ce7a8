"""What each page answers, from a lake that has something for all of them."""

from __future__ import annotations

import re

import pyarrow as pa

from laketx import connect
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.console.conftest import Owned
from tests.console.visitor import text_of
from tests.integration.compacting import insert, new_table, work


def test_home_says_whether_the_lake_is_well_and_what_to_do(untouched: Owned) -> None:
    text = untouched.owner.read("/")
    assert "One thing needs you" in text
    assert "11 of 12 checks pass" in text
    assert "Tasks have a worker: no" in text
    assert "laketx worker" in text
    assert re.search(r"2 lost races", text)
    assert "billing by" in text
    assert "1 branch each keeps" in text


def test_tables_are_listed_searched_and_paged(owned: Owned) -> None:
    text = owned.owner.read("/tables")
    assert "shop.items" in text
    assert "shop.orders" in text
    assert "append, by day" in text
    assert "shop.items" not in owned.owner.read("/tables?q=ORD")
    assert "No table whose name contains “nothing”" in owned.owner.read("/tables?q=nothing")
    assert "shop.orders" in owned.owner.read("/tables?namespace=shop")


def test_a_table_shows_its_figures_partitions_columns_and_how_to_read_it(owned: Owned) -> None:
    text = owned.owner.read(f"/tables/{owned.filled.orders}")
    assert "25,460 rows" in text
    assert "day=2026-11-26" in text
    assert "amount double" in text
    assert "SELECT * FROM lake.shop.orders VERSION AS OF 15" in text
    assert "lake.table('shop.orders').to_arrow(version=15)" in text
    assert "laketx head shop.orders --version 15" in text
    assert "CALL lake.system.restore(table => 'shop.orders', version => 15)" in text
    assert "laketx tag create shop.orders name --version 15" in text
    assert "lake.table('shop.orders').clone('shop.orders_clone', version=15)" in text
    assert "month-end : version 5, closed books" in text
    assert "day=2026-11-24: " in text
    assert "of the rows hidden" in text


def test_rows_of_any_version_are_shown(owned: Owned) -> None:
    newest = owned.owner.page(f"/tables/{owned.filled.items}/rows")
    assert [f"item {at}" in newest for at in range(4)] == [True, True, True, False]
    older = owned.owner.page(f"/tables/{owned.filled.items}/rows?version=1")
    assert ["item 0" in older, "item 1" in older] == [True, False]
    assert "has no rows" in owned.owner.read(f"/tables/{owned.filled.items}/rows?version=0")
    assert "The first 100 rows of version 3" in owned.owner.read(f"/tables/{owned.filled.orders}/rows?version=3")
    assert owned.owner.get(f"/tables/{owned.filled.items}/rows?version=99").status_code == 400
    assert owned.owner.get(f"/tables/{owned.filled.items}/rows?version=x").status_code == 400


def test_the_timeline_tells_logical_commits_from_table_services(owned: Owned) -> None:
    page = owned.owner.page(f"/tables/{owned.filled.orders}/timeline")
    assert page.count('class="is-logical"') == 14
    assert "minor compact" in page
    assert "14 logical commits above, 1 of table services below" in text_of(page)
    logical = owned.owner.page(f"/tables/{owned.filled.orders}/timeline?kind=logical")
    assert "minor compact" not in logical
    services = owned.owner.page(f"/tables/{owned.filled.orders}/timeline?kind=services")
    assert 'class="is-logical"' not in services
    assert "minor compact" in services


def test_the_timeline_goes_on_by_version(owned: Owned) -> None:
    older = owned.owner.page(f"/tables/{owned.filled.orders}/timeline?before=4")
    assert re.findall(r"versions/(\d+)\">\d", older) == ["3", "2", "1", "0"]
    assert "?after=3" in older
    newer = owned.owner.page(f"/tables/{owned.filled.orders}/timeline?after=3")
    assert f"/tables/{owned.filled.orders}/versions/15" in newer


def test_a_commit_says_who_what_for_and_what_changed(owned: Owned) -> None:
    text = owned.owner.read(f"/tables/{owned.filled.orders}/versions/13")
    assert "forget the first customers" in text
    assert "1 delete set hides rows" in text
    compacted = owned.owner.read(f"/tables/{owned.filled.orders}/versions/14")
    assert "none: the rows are those of the version before" in compacted
    assert owned.owner.get(f"/tables/{owned.filled.orders}/versions/99").status_code == 404


def test_a_version_gets_a_tag(owned: Owned) -> None:
    page = f"/tables/{owned.filled.items}/versions/1"
    fields = {"form_token": owned.owner.form_token(page), "name": "first", "comment": "the first item"}
    assert owned.owner.post(f"{page}/tags", fields).headers["location"] == page
    assert "first : the first item" in owned.owner.read(page)
    assert owned.owner.post(f"/tables/{owned.filled.items}/versions/2/tags", fields).status_code == 409
    assert owned.owner.post(f"{page}/tags", fields | {"name": "no name"}).status_code == 400


def test_a_version_is_restored_after_a_confirmation(owned: Owned) -> None:
    owner = owned.owner
    with connect(owned.folder) as lake:
        table = lake.create_table("shop.restored", "id bigint")
        for _ in range(3):
            table.append([{"id": 1}])
        items = table.table_id
    page = f"/tables/{items}/versions/1"
    assert "A restore commits version 4 with the rows of version 1" in owner.read(page)
    fields = {"form_token": owner.form_token(page), "confirm": "something else"}
    assert owner.post(f"{page}/restore", fields).status_code == 400
    assert owner.get(f"/tables/{items}/versions/4").status_code == 404
    answer = owner.post(f"{page}/restore", fields | {"confirm": "shop.restored"})
    assert answer.headers["location"] == f"/tables/{items}/versions/4"
    restored = owner.read(f"/tables/{items}/versions/4")
    assert "restore version 1" in restored
    assert "Restore version 4" not in restored, "the newest version is there already"
    assert "1 row" in owner.read(f"/tables/{items}")
    back = owner.post(f"/tables/{items}/versions/3/restore", fields | {"confirm": "shop.restored"})
    assert back.headers["location"] == f"/tables/{items}/versions/5"


def test_a_version_is_cloned(owned: Owned) -> None:
    page = f"/tables/{owned.filled.items}/versions/2"
    fields = {"form_token": owned.owner.form_token(page), "name": "shop.two_items"}
    clone = owned.owner.post(f"{page}/clone", fields).headers["location"]
    assert "2 rows" in owned.owner.read(clone)
    assert owned.owner.post(f"{page}/clone", fields).status_code == 409
    assert owned.owner.post(f"{page}/clone", fields | {"name": "no name!"}).status_code == 400


def test_files_show_their_partition_version_and_values(owned: Owned) -> None:
    page = f"/tables/{owned.filled.orders}/files?version=12"
    text = owned.owner.read(page)
    assert "Files of version 12" in text
    assert "day=2026-11-24" in text
    assert "id 0 to 1999" in text
    assert text.count("small") == 12
    assert "delete set" in owned.owner.read(f"/tables/{owned.filled.orders}/files?version=13")
    assert "The version has no files." in owned.owner.read(f"/tables/{owned.filled.orders}/files?version=0")
    assert owned.owner.get(f"/tables/{owned.filled.orders}/files?version=99").status_code == 400


def test_a_branch_is_created_refreshed_and_dropped(owned: Owned) -> None:
    owner = owned.owner
    fields = {"form_token": owner.form_token("/branches"), "name": "audit", "days": "30", "comment": "of November"}
    assert owner.post("/branches", fields).headers["location"] == "/branches/audit"
    assert "of November" in owner.read("/branches/audit")
    assert owner.post("/branches", fields).status_code == 409
    assert owner.post("/branches", fields | {"name": "other", "days": "many"}).status_code == 400
    refreshed = owner.post("/branches/audit/refresh", fields).headers["location"]
    assert "fork point is now" in owner.read(refreshed)
    assert owner.post("/branches/audit/drop", fields | {"confirm": "no"}).status_code == 400
    assert owner.post("/branches/audit/drop", fields | {"confirm": "audit"}).headers["location"] == "/branches"
    assert "audit" not in owner.read("/branches")


def test_a_lake_without_views_says_so(untouched: Owned) -> None:
    assert "There is no materialized view" in untouched.owner.read("/views")


def test_views_show_how_fresh_they_are_and_what_they_read(owned: Owned) -> None:
    owner = owned.owner
    with connect(owned.folder) as lake:
        lake.create_table("shop.prices_by_day", "id bigint, day string").append([{"id": 1, "day": "a"}])
        query = "SELECT day, count(*) AS n FROM shop.prices_by_day GROUP BY day"
        days_id = lake.create_materialized_view("shop.days", query, schedule="every 5 minutes").table.table_id
        lake.create_materialized_view("shop.best", "SELECT day FROM shop.days ORDER BY n DESC, day LIMIT 1")
        assert owner.read("/views").count(" fresh ") == 2
        lake.table("shop.prices_by_day").append([{"id": 2, "day": "b"}])
    page, text = owner.page("/views"), owner.read("/views")
    assert "behind 1 commit" in text
    assert "1 view behind" in owner.read("/")
    assert "shop.prices_by_day +1" in text
    assert "EVERY 5 MINUTES" in text.upper()
    assert page.count('<rect class="view"') == 2
    assert page.count('<rect class="table"') == 1
    fields = {"form_token": owner.form_token("/views"), "action": "suspend"}
    done = [owner.post(f"/views/{days_id}/{action}", fields) for action in ("refresh", "refresh", "verify")]
    assert [each.headers["location"].partition("&")[0] for each in done] == [
        "/views?notice=refreshed",
        "/views?notice=fresh",
        "/views?notice=holds",
    ]
    assert "shop.days has the rows of its query" in owner.read(done[2].headers["location"])
    assert "shop.prices_by_day +1" not in owner.read("/views")
    assert owner.post(f"/views/{owned.filled.items}/refresh", fields).status_code == 404
    assert owner.post(f"/views/{days_id}/schedule", fields).headers["location"] == "/views"
    assert "suspended" in owner.read("/views")
    assert owner.post(f"/views/{days_id}/schedule", fields | {"action": "resume"}).status_code == 303
    assert "suspended" not in owner.read("/views")
    assert owner.post(f"/views/{owned.filled.items}/schedule", fields).status_code == 404
    assert owner.post(f"/views/{days_id}/schedule", fields | {"action": "other"}).status_code == 400


def test_two_versions_are_compared(owned: Owned) -> None:
    text = owned.owner.read(f"/tables/{owned.filled.orders}/compare?from=0&to=3")
    assert "3 logical commits" in text
    assert "+6,000 \N{MINUS SIGN}0 rows by increment" in text
    assert "The same columns." in text
    turned = owned.owner.read(f"/tables/{owned.filled.orders}/compare?from=3&to=0")
    assert "Version 0 to 3" in turned


def test_races_are_counted_by_pair_and_explained(untouched: Owned) -> None:
    page = untouched.owner.page("/races")
    text = text_of(page)
    assert "2 transactions lost a race" in text
    assert "update lost to insert: 1" in text
    assert "insert lost to insert: 1" in text
    chosen = untouched.owner.read("/races?loser=5&winner=1")
    assert "update lost to insert: 1" in chosen
    race = untouched.owner.read(f"/races/{untouched.filled.lost}")
    assert "It lost to INSERT at version 15 in partition day=2026-11-26" in race
    assert "Begin a new transaction with adopt_from" in race
    assert f"laketx why {untouched.filled.lost}" in race
    assert "late arrivals" in race
    assert re.search(r"INSERT INTO commits conflict this race conflict commits conflict", race), "the cell is lit"
    assert "2 files written for nothing, 2 B with 2 rows" in text


def test_each_check_leads_to_its_runbook(untouched: Owned) -> None:
    home, runbooks = untouched.owner.page("/"), untouched.owner.page("/runbooks")
    anchors = set(re.findall(r'href="/runbooks#([^"]+)"', home))
    assert {"laketxraceslost", "tasks-that-wait-or-fail"} <= anchors
    assert [each for each in anchors if f'id="{each}"' not in runbooks] == []
    assert "Do this first: laketx worker" in text_of(home)


def test_branches_show_what_they_hold_and_what_a_merge_would_do(owned: Owned) -> None:
    assert "tries another price" in owned.owner.read("/branches")
    text = owned.owner.read("/branches/etl")
    assert "1 table was changed on it" in text
    assert "Preview the merge" in text
    preview = owned.owner.read("/branches/etl?preview=yes")
    assert "merges as they are" in preview
    assert owned.owner.get("/branches/none").status_code == 404
    assert "shop.prices changed 1 0 +1" in owned.owner.read("/branches/etl?diff=yes")
    assert "The branch keeps no file that main has no more" in owned.owner.read("/branches/etl?held=yes")


def test_a_branch_begins_at_a_version_of_a_table(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        table = lake.create_table("shop.branched", "id bigint")
        for at in range(3):
            table.append([{"id": at}])
        page = f"/tables/{table.table_id}/versions/1"
        fields = {"form_token": owned.owner.form_token(page), "name": "earlier"}
        assert owned.owner.post(f"{page}/branch", fields).headers["location"] == "/branches/earlier"
        assert lake.branch("earlier").table("shop.branched").to_arrow().to_pylist() == [{"id": 0}]
        assert table.to_arrow().num_rows == 3, "the lake is as it was"
        assert owned.owner.post(f"{page}/branch", fields).status_code == 409
        missing = owned.owner.post(f"/tables/{table.table_id}/versions/99/branch", fields | {"name": "never"})
        assert missing.status_code == 404
        assert {branch.name for branch in lake.client.list_branches()} == {"etl", "earlier"}
        lake.client.drop_branch("earlier")


def test_a_branch_is_merged_once_it_is_confirmed(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        merged = lake.create_table("shop.merged", "id bigint")
        lake.branch("done").table("shop.merged").append(pa.table({"id": pa.array([1], pa.int64())}))
    fields = {"form_token": owned.owner.form_token("/branches/done?preview=yes"), "confirm": "done"}
    assert owned.owner.post("/branches/done/merge", fields).headers["location"] == "/branches"
    assert owned.owner.get("/branches/done").status_code == 404
    assert "1 row " in owned.owner.read(f"/tables/{merged.table_id}")
    assert "The table asks for none" in owned.owner.read(f"/tables/{merged.table_id}/versions/1")


def test_a_merged_version_shows_the_checks_that_held(owned: Owned) -> None:
    check = "SELECT count(*) = 0 FROM shop.checked WHERE id < 0"
    with connect(owned.folder) as lake:
        checked = lake.create_table("shop.checked", "id bigint", properties={"merge.checks": check})
        branch = lake.branch("checked")
        branch.table("shop.checked").append(pa.table({"id": pa.array([1], pa.int64())}))
        branch.merge()
    versions = [owned.owner.read(f"/tables/{checked.table_id}/versions/{at}") for at in (0, 1)]
    assert ["Checks of the merge" in text for text in versions] == [False, True]
    assert check in versions[1]


def test_retention_names_who_holds_the_horizon(owned: Owned) -> None:
    text = owned.owner.read("/retention")
    assert "version 5 is kept, 10 behind" in text
    assert "laketx tag drop shop.orders month-end" in text
    assert "laketx cursor drop shop.orders billing" in text
    assert "etl keeps what main showed" in text
    assert "keeps versions for 168 hours ( data.retain.hours ): now from version 0 on" in text


def test_retention_shows_what_branches_and_views_keep(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        table = lake.create_table("shop.kept", "id bigint")
        table.append([{"id": 1}])
        lake.create_materialized_view("shop.kept_by", "SELECT id FROM shop.kept")
        lake.client.create_branch("keeper", keep_ms=86_400_000)
        table.append([{"id": 2}])
    page = owned.owner.page("/retention")
    text = text_of(page)
    assert "branch keeper: version 1 and all after it" in text
    assert "laketx branch drop keeper" in text
    assert "view shop.kept_by: version 1 and all after it" in text
    assert "laketx view refresh shop.kept_by" in text
    with connect(owned.folder) as lake:
        lake.client.drop_branch("keeper")
    assert "keeper" not in owned.owner.read("/retention")


def test_what_reads_or_holds_a_dropped_table_breaks_no_page(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        source = lake.create_table("shop.passing", "id bigint, day string")
        source.append([{"id": 1, "day": "a"}])
        view = lake.create_materialized_view("shop.passed", "SELECT day, count(*) AS n FROM shop.passing GROUP BY day")
        lake.client.create_cursor(source.table_id, "reader", version=0)
        source.compact("major")
        lake.client.drop_table(source.table_id)
        for path in ("/", "/tables", "/races", "/views", "/consumers", "/retention", "/services", "/branches"):
            assert "shop.passing" not in owned.owner.read(path) or path == "/services", path
        assert "a table that is gone" in owned.owner.read("/views")
        dropped = owned.owner.get(f"/tables/{source.table_id}")
        assert (dropped.status_code, "laketx table undrop" in dropped.text) == (409, True)
        lake.client.drop_table(view.table.table_id)


def test_consumers_show_their_lag(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        lake.client.create_cursor(owned.filled.orders, "stream-copy")
    text = owned.owner.read("/consumers")
    assert re.search(r"billing cursor shop.orders 7 [0-9.]+ (ms|s|min) 8 15 ", text)
    assert re.search(r"stream-copy stream shop.orders 0 up to date 15 15 ", text)


def test_table_services_show_tasks_and_what_would_run(owned: Owned) -> None:
    text = owned.owner.read("/services")
    assert "queued major shop.items" in text
    of_table = owned.owner.read(f"/services?table={owned.filled.orders}")
    assert "What would run now" in of_table
    assert re.search(r"minor compact shop.orders 14 \d+ → \d+ ", of_table)
    assert re.search(r"a scan of everything since then reads \d+ files, -?\d.* and 40 rows less", of_table), (
        "what a delete hid"
    )
    assert "A scan reads less by input \N{MINUS SIGN} output" in of_table
    assert "No table service has committed" in owned.owner.read(f"/services?table={owned.filled.items}")


def test_the_output_of_tasks_is_shown_once_they_committed(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        table_id = new_table(lake.client, "shop.tidied", keyed=False)
        for _ in range(3):
            insert(lake.client, table_id, keyed=False)
        lake.client.request_tasks(table_id, common_pb2.OPERATION_MAJOR_COMPACT)
        work(lake.client, table_id)
    text = owned.owner.read("/services")
    assert re.search(r"major compact shop.tidied 4 3 → 1 ", text)
    assert "files became" in text


def test_table_services_show_what_the_scans_since_saved(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        table = lake.create_table("shop.scanned", "id bigint, day string", partition_by=["day"])
        for key in range(3):
            table.append([{"id": key, "day": "a"}])
        table.to_arrow()
        assert table.compact("major") is not None
        path = f"/services?table={table.table_id}"
        assert "the scans of everything since then saved 0 files, 0 B and 0 rows" in owned.owner.read(path)
        for _ in range(2):
            table.to_arrow()
        table.to_arrow(where="day = 'a'")
        text = owned.owner.read(path)
    assert "the scans of everything since then saved 4 files, " in text
    assert re.search(r"major compact shop.scanned 4 3 → 1 .* 2 and 1 of a part 4 files ", text)


def test_open_transactions_show_their_lease_and_whether_they_are_doomed(owned: Owned) -> None:
    with connect(owned.folder) as lake:
        table = lake.create_table("shop.raced", "id bigint")
        table.append([{"id": 1}])
        intent = transaction_pb2.TableIntent(
            table_id=table.table_id,
            operation=common_pb2.OPERATION_UPDATE,
            reads=[common_pb2.Read(predicate=common_pb2.Predicate(literal=True))],
        )
        with lake.client.begin([intent], commit_message="too slow") as txn:
            assert "doomed" not in owned.owner.read(f"/races?table={table.table_id}")
            table.append([{"id": 2}])
            text = owned.owner.read(f"/races?table={table.table_id}")
            assert re.search(r"begun doomed lost to INSERT.* \d+(\.\d+)? (s|min) 0 1 ", text), text[-600:]
            assert "It can't commit any more" in owned.owner.read(f"/races/{txn.txn_id}")
            txn.abort()


def test_a_page_that_is_not_there_says_so(owned: Owned) -> None:
    for path in ("/nothing", "/tables/nothing", f"/tables/{'0' * 8}-0000-0000-0000-{'0' * 12}", "/races/nothing"):
        answer = owned.owner.get(path)
        assert (path, answer.status_code) == (path, 404)
        assert "There is no such" in answer.text
