"""Schemas: how columns change, what must stay, and that an id is given once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Alteration, Profile, TableMeta
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column, Schema, evolve, make_schema, replace_schema
from metaservice.core.table.schema_changes import (
    Add,
    ColumnPlace,
    Comment,
    Default,
    Drop,
    Move,
    Relax,
    Rename,
    SchemaChange,
    Widen,
)
from metaservice.store.records.tables import decode_table, encode_table

COLUMNS = [
    Column("id", "int", nullable=False),
    Column("day", "date", nullable=True),
    Column("n", "int", nullable=True),
    Column("pay", "decimal(8,2)", nullable=False),
    Column("to", "struct<street:string,zip:int not null,tags:array<struct<k:int>>>", nullable=True),
    Column("m", "map<struct<a:int>,struct<b:float>>", nullable=True),
]


def schema(partitions: tuple[str, ...] = ("day", "n"), key: tuple[str, ...] = ("id",)) -> Schema:
    return make_schema(COLUMNS, partitions, key)


def text(found: Schema) -> str:
    """`1 id int!, 2 day date, …`: ids, names, types, `!` where NULL is refused."""
    return ", ".join(f"{c.column_id} {c.name} {c.type}{'' if c.nullable else '!'}" for c in found.columns)


def ids(found: Schema) -> dict[str, int]:
    numbers = {column.name: column.column_id for column in found.columns}
    return numbers | {f"{c.name}.{path}": number for c in found.columns for path, number in c.nested}


def test_every_column_and_field_has_an_id() -> None:
    found = schema()
    assert ids(found) == {
        "id": 1,
        "day": 2,
        "n": 3,
        "pay": 4,
        "to": 5,
        "to.street": 6,
        "to.zip": 7,
        "to.tags": 8,
        "to.tags.element": 9,
        "to.tags.element.k": 10,
        "m": 11,
        "m.key": 12,
        "m.key.a": 13,
        "m.value": 14,
        "m.value.b": 15,
    }
    assert found.last_id == 15


WIDE = f"struct<{','.join(f'f{n}:int' for n in range(4_000))}>"
A_INT = [Column("a", "int", nullable=True)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Add("b", "string"), "1 a int, 2 b string"),
        (Add("b", "string", place=ColumnPlace()), "2 b string, 1 a int"),
        (Add("b", "array<int>", place=ColumnPlace("a")), "1 a int, 2 b array<int>"),
        (Rename("a", "A"), "1 A int"),
        (Widen("a", "bigint"), "1 a bigint"),
    ],
)
def test_one_change(change: SchemaChange, expected: str) -> None:
    assert text(evolve(make_schema(A_INT, (), ()), [change])) == expected


def test_a_name_that_comes_back_is_another_column() -> None:
    two = make_schema([*A_INT, Column("b", "int", nullable=True)], (), ())
    assert text(evolve(two, [Drop("b"), Add("b", "string"), Move("b", ColumnPlace())])) == "3 b string, 1 a int"
    assert text(evolve(two, [Rename("a", "c"), Rename("b", "a"), Rename("c", "b")])) == "1 b int, 2 a int"
    assert text(evolve(evolve(two, [Drop("b")]), [Add("c", "int")])) == "1 a int, 3 c int"


def test_fields_change_like_columns() -> None:
    found = evolve(
        schema(),
        [
            Add("to.lat", "double", place=ColumnPlace("street")),
            Rename("to.street", "road"),
            Relax("to.zip"),
            Widen("to.tags.element.k", "bigint"),
            Widen("m.value.b", "double"),
            Add("to.tags.element.v", "int"),
        ],
    )
    to, m = found.columns[4], found.columns[5]
    assert to.type == "struct<road:string,lat:double,zip:int,tags:array<struct<k:bigint,v:int>>>"
    assert m.type == "map<struct<a:int>,struct<b:double>>"
    assert (ids(found)["to.road"], ids(found)["to.lat"], ids(found)["to.tags.element.v"]) == (6, 16, 17)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Add("id", "int"), "COLUMN_EXISTS"),
        (Add("ID", "int"), "COLUMN_EXISTS"),
        (Add("x", "int", nullable=False), "COLUMN_NOT_NULLABLE"),
        (Add("x", "decimalxyz"), "TYPE_UNKNOWN"),
        (Add("x\ty", "int"), "NAME_INVALID"),
        (Add("x" * 129, "int"), "NAME_INVALID"),
        (Add("`x", "int"), "NAME_INVALID"),
        (Add("x..y", "int"), "NAME_INVALID"),
        (Add("_Commit_Version", "int"), "COLUMN_RESERVED"),
        (Add("_laketx_x", "int"), "COLUMN_RESERVED"),
        (Rename("pay", "_ROW_id"), "COLUMN_RESERVED"),
        (Rename("pay", "a\u202eb"), "NAME_INVALID"),
        (Add("", "int"), "NAME_INVALID"),
        (Add("x", "int", place=ColumnPlace("nobody")), "COLUMN_UNKNOWN"),
        (Add("n.x", "int"), "COLUMN_UNKNOWN"),
        (Add("m.key.x", "int"), "COLUMN_FIXED"),
        (Add("to.tags.x", "int"), "COLUMN_UNKNOWN"),
        (Drop("id"), "COLUMN_FIXED"),
        (Drop("day"), "COLUMN_FIXED"),
        (Drop("nobody"), "COLUMN_UNKNOWN"),
        (Drop("m.value.b"), "COLUMNS_INVALID"),
        (Drop("m.value"), "COLUMN_UNKNOWN"),
        (Rename("day", "d"), "COLUMN_FIXED"),
        (Rename("pay", "n"), "COLUMN_EXISTS"),
        (Rename("pay", "pay"), "COLUMN_EXISTS"),
        (Rename("m.key.a", "x"), "COLUMN_FIXED"),
        (Move("pay", ColumnPlace("pay")), "PLACE_INVALID"),
        (Move("pay", ColumnPlace("nobody")), "COLUMN_UNKNOWN"),
        (Widen("id", "bigint"), "COLUMN_FIXED"),
        (Widen("n", "double"), "TYPE_NOT_WIDER"),
        (Widen("day", "timestamp_ntz"), "TYPE_NOT_WIDER"),
        (Widen("pay", "decimal(8,3)"), "TYPE_NOT_WIDER"),
        (Widen("to", "string"), "TYPE_NOT_WIDER"),
        (Widen("m.key.a", "bigint"), "COLUMN_FIXED"),
        (Relax("id"), "COLUMN_FIXED"),
        (Comment("to.zip", "x"), "COMMENT_NESTED"),
        (Default("to.zip", "'x'"), "DEFAULT_NESTED"),
        (Default("nobody", "1"), "COLUMN_UNKNOWN"),
    ],
)
def test_what_is_refused(change: SchemaChange, reason: str) -> None:
    with pytest.raises(MetaError) as refused:
        evolve(schema(), [change])
    assert refused.value.reason == reason


def test_a_default_stays_with_its_column() -> None:
    found = evolve(
        schema(), [Default("n", "1"), Default("pay", "2"), Rename("pay", "wage"), Widen("n", "bigint"), Relax("wage")]
    )
    assert {column.name: column.default_sql for column in found.columns if column.default_sql} == {
        "n": "1",
        "wage": "2",
    }
    assert not Alteration(schema_changes=(Default("n", "1"),)).changes_schema
    assert "".join(column.default_sql for column in evolve(found, [Default("n", ""), Drop("wage")]).columns) == ""


def test_key_and_partition_columns_change_where_hashes_and_names_stay() -> None:
    found = evolve(
        schema(),
        [Rename("id", "key"), Rename("key", "k2"), Widen("n", "bigint"), Move("k2", ColumnPlace("n"))],
    )
    assert found.primary_key == ("k2",)
    assert found.partition_columns == ("day", "n")
    assert [column.name for column in found.columns] == ["day", "n", "k2", "pay", "to", "m"]
    assert found.columns[1].type == "bigint"


@pytest.mark.parametrize(
    ("columns", "partitions", "key", "reason"),
    [
        ([], (), (), "COLUMNS_INVALID"),
        ([Column("a", "int", nullable=True)] * 2, (), (), "COLUMN_TWICE"),
        ([Column("a", "int", nullable=True), Column("A", "int", nullable=True)], (), (), "COLUMN_TWICE"),
        ([Column("a\x7fb", "int", nullable=True)], (), (), "NAME_INVALID"),
        ([Column("", "int", nullable=True)], (), (), "NAME_INVALID"),
        ([Column("_change_type", "string", nullable=True)], (), (), "COLUMN_RESERVED"),
        ([Column("s", "struct<`a\n`:int>", nullable=True)], (), (), "NAME_INVALID"),
        ([Column("s", "struct<`a b`:int,`A B`:int>", nullable=True)], (), (), "COLUMN_TWICE"),
        ([Column("a", "array<int>", nullable=False)], ("a",), (), "TYPE_NOT_ALLOWED"),
        ([Column("a", "struct<x:int>", nullable=False)], (), ("a",), "TYPE_NOT_ALLOWED"),
        ([Column("a", "double", nullable=False)], (), ("a",), "TYPE_NOT_ALLOWED"),
        ([Column("a", "int", nullable=True)], (), ("a",), "KEY_NULLABLE"),
        ([Column("a", "int", nullable=False)], (), ("a", "a"), "COLUMN_TWICE"),
        ([Column("a", "int", nullable=False)], (), ("b",), "COLUMN_UNKNOWN"),
        ([Column(name, WIDE, nullable=True) for name in "abc"], (), (), "TOO_MANY_FIELDS"),
    ],
)
def test_what_is_no_table(
    columns: list[Column], partitions: tuple[str, ...], key: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(MetaError) as refused:
        make_schema(columns, partitions, key)
    assert refused.value.reason == reason


def test_a_replaced_schema_keeps_the_ids_of_what_stays() -> None:
    before = schema(("day",))
    wanted = [
        COLUMNS[0],
        COLUMNS[1],
        Column("n", "string", nullable=True),
        COLUMNS[4],
        Column("x", "int", nullable=False),
    ]
    found = replace_schema(before, make_schema(wanted, ("day",), ("id",)))
    assert [column.column_id for column in found.columns] == [1, 2, 16, 5, 17]
    assert found.columns[3].nested == before.columns[4].nested
    for partitions, key in (((), ("id",)), (("day",), ()), (("n",), ("id",))):
        with pytest.raises(MetaError) as refused:
            replace_schema(before, make_schema(COLUMNS, partitions, key))
        assert refused.value.reason == "REPLACE_CHANGES_LAYOUT"


paths = st.sampled_from(["id", "day", "n", "pay", "to", "m", "x", "y", "to.street", "to.zip", "to.x", "m.value.b"])
new_names = st.sampled_from(["x", "y", "z", "n", "pay", "X"])
new_types = st.sampled_from(["bigint", "double", "decimal(20,4)", "struct<p:int,q:array<int>>", "timestamp_ntz"])
places = st.builds(ColumnPlace, st.sampled_from(["", "id", "n", "x"]))
changes: st.SearchStrategy[SchemaChange] = st.one_of(
    st.builds(Add, paths, new_types, place=st.none() | places),
    st.builds(Drop, paths),
    st.builds(Rename, paths, new_names),
    st.builds(Move, paths, places),
    st.builds(Widen, paths, new_types),
    st.builds(Relax, paths),
    st.builds(Comment, paths, st.just("c")),
)


@settings(max_examples=150)
@given(st.lists(changes, max_size=25))
def test_no_id_is_ever_given_twice(steps: list[SchemaChange]) -> None:
    """Every id has belonged to one column alone: one type (or a wider one), and once gone it stays gone."""
    now = schema()
    gone: set[int] = set()
    for step in steps:
        before = set(ids(now).values())
        try:
            now = evolve(now, [step])
        except MetaError:
            continue
        numbers = list(ids(now).values())
        fresh = set(numbers) - before
        assert len(set(numbers)) == len(numbers)
        assert not gone & set(numbers)
        assert all(number > max(before) or number not in before for number in fresh)
        assert max(numbers) <= now.last_id
        gone |= before - set(numbers)
        assert now.partition_columns == ("day", "n")
        kept = {column.column_id: column for column in now.columns}
        assert (kept[1].type, kept[1].nullable, now.primary_key) == ("int", False, (kept[1].name,))
        assert (kept[2].name, kept[2].type, kept[3].name) == ("day", "date", "n")


@settings(max_examples=100)
@given(st.lists(changes, max_size=15))
def test_a_record_keeps_the_whole_schema(steps: list[SchemaChange]) -> None:
    bare = TableMeta("t", "t", Partitioning(()), (), 1, Profile.MAXCOMPUTE, 0, {}, frozenset(), "", (), 0).with_schema(
        schema()
    )
    assert bare.schema_version == 1
    for step in steps:
        try:
            now = bare.altered(Alteration(schema_changes=(step,)))
        except MetaError:
            continue
        assert now.schema_version == bare.schema_version + (not isinstance(step, Comment))
        bare = now
    assert decode_table(encode_table(bare)) == bare


def test_columns_have_any_name_and_are_found_in_any_case() -> None:
    names = ["Größe", "a.b", "a`b", "a b", "a=b/c", "日本", "s"]
    kinds = dict.fromkeys(names, "int") | {"s": "struct<`x.y`:int,z:struct<`q q`:int>>"}
    columns = [Column(name, kinds[name], name not in names[:2]) for name in names]
    found = make_schema(columns, ["A=B/C"], ["GRÖSSE".replace("SS", "ß"), "A.b"])
    assert (found.partition_columns, found.primary_key) == (("a=b/c",), ("Größe", "a.b"))
    assert found.columns[6].nested == (("`x.y`", 8), ("z", 9), ("z.`q q`", 10))
    changed = evolve(
        found,
        [
            Add("S.`n.n`", "int"),
            Rename("S.`x.y`", "X.Y"),
            Widen("s.Z.`q q`", "bigint"),
            Rename("`A`` B`".replace(" ", ""), "A`B"),
            Drop("A B"),
            Move("日本", ColumnPlace("`A.B`")),
        ],
    )
    assert [column.name for column in changed.columns] == ["Größe", "a.b", "日本", "A`B", "a=b/c", "s"]
    assert changed.columns[5].type == "struct<`X.Y`:int,z:struct<`q q`:bigint>,`n.n`:int>"
    assert dict(changed.columns[5].nested) == {"`X.Y`": 8, "z": 9, "z.`q q`": 10, "`n.n`": 11}
    with pytest.raises(MetaError, match="COLUMN_EXISTS"):
        evolve(changed, [Add("größe", "int")])


def test_letters_that_engines_take_as_one_are_one() -> None:
    for one, other in (("k", "\u212a"), ("s", "\u017f"), ("i", "\u0131"), ("\u03c3", "\u03c2"), ("Ä", "ä")):
        with pytest.raises(MetaError, match="COLUMN_TWICE"):
            make_schema([Column(one, "int", True), Column(other, "int", True)], [], [])
    make_schema([Column("straße", "int", True), Column("strasse", "int", True)], [], [])
