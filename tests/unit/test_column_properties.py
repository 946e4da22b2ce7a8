"""Properties that name columns, when columns get other names or go."""

import pytest

from metaservice.core.compaction.policy import policy_of
from metaservice.core.table.column_properties import follow_columns
from metaservice.core.table.meta import Alteration, Profile, TableMeta
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column
from metaservice.core.table.schema_changes import Drop, Rename

ORDER = "compaction.cluster.order"
BLOOM = "index.bloom.columns"
BEFORE = (Column("id", "bigint", nullable=True, column_id=1), Column("pay", "double", nullable=True, column_id=2))


@pytest.mark.parametrize(
    ("properties", "after", "expected"),
    [
        ({ORDER: "sort(pay, id)"}, {1: "id", 2: "salary"}, {ORDER: "sort(salary, id)"}),
        ({ORDER: "zorder(ID, pay)"}, {1: "id", 2: "a,b"}, {ORDER: "zorder(id, `a,b`)"}),
        ({ORDER: "sort(pay, id)"}, {1: "pay", 2: "id"}, {ORDER: "sort(id, pay)"}),
        ({ORDER: "sort(pay, id)"}, {1: "id"}, {ORDER: "sort(id)"}),
        ({ORDER: "sort(pay)"}, {1: "id"}, {ORDER: ""}),
        ({ORDER: "sort(later, pay)"}, {1: "id", 2: "salary"}, {ORDER: "sort(later, salary)"}),
        ({ORDER: "sort(later, pay)"}, {1: "id", 2: "later"}, {ORDER: "sort(later)"}),
        ({ORDER: " sort( pay )"}, {1: "number", 2: "pay"}, {ORDER: " sort( pay )"}),
        ({ORDER: "sort(pay)", BLOOM: "id, pay"}, {2: "salary"}, {ORDER: "sort(salary)", BLOOM: "salary"}),
        ({"user.a": "pay"}, {1: "id"}, {"user.a": "pay"}),
    ],
)
def test_properties_name_the_same_columns(
    properties: dict[str, str], after: dict[int, str], expected: dict[str, str]
) -> None:
    columns = [Column(name, "bigint", nullable=True, column_id=key) for key, name in after.items()]
    assert follow_columns(BEFORE, columns, properties) == expected
    assert follow_columns(BEFORE, columns, properties, but={ORDER, BLOOM}) == properties


def test_compactions_go_on_after_a_column_of_their_order_was_renamed() -> None:
    meta = TableMeta(
        "t", "t", Partitioning(()), (), 1, Profile.MAXCOMPUTE, 0, {ORDER: "sort(pay)"}, frozenset(), "", BEFORE, 2
    )
    renamed = meta.altered(Alteration(schema_changes=(Rename("pay", "salary"),)))
    policy = policy_of(renamed)
    assert (policy.order_unknown, policy.options.order_columns) == ("", ("salary",))
    assert renamed.altered(Alteration(schema_changes=(Drop("salary"),))).properties == {ORDER: ""}
    given = Alteration({ORDER: "sort(id)"}, schema_changes=(Rename("pay", "salary"),))
    assert meta.altered(given).properties == {ORDER: "sort(id)"}
