"""Where a key is unique: what a new table may say, and what one that is there has."""

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.key_scope import check_key_scope, key_scope, spans_partitions

SAID: tuple[dict[str, str], ...] = ({}, {"key.scope": "table"}, {"key.scope": "partition"})


@pytest.mark.parametrize("said", SAID, ids=str)
@pytest.mark.parametrize("partitions", [(), ("day",), ("day", "shop")], ids=str)
@pytest.mark.parametrize("key", [("id",), ("day", "id"), ("id", "shop", "day")], ids=str)
def test_a_key_contains_the_partition_columns_or_says_where_it_is_unique(
    key: tuple[str, ...], partitions: tuple[str, ...], said: dict[str, str]
) -> None:
    missing = [name for name in partitions if name not in key]
    if missing and not said:
        with pytest.raises(MetaError) as refused:
            check_key_scope(key, partitions, said)
        assert refused.value.reason == "KEY_LACKS_PARTITION"
        assert refused.value.facts["missing"] == ",".join(missing)
    else:
        check_key_scope(key, partitions, said)
        assert key_scope(key, partitions, said) == said.get("key.scope", "table")
        assert spans_partitions(key, partitions, said) == (bool(missing) and said["key.scope"] == "table")


def test_a_table_from_before_tells_it_by_its_columns() -> None:
    assert key_scope(("id",), ("day",), {}) == "partition"
    assert key_scope(("id", "day"), ("day",), {}) == "table"
    assert key_scope((), ("day",), {}) == ""
    assert not any(spans_partitions(key, ("day",), {}) for key in ((), ("id",), ("id", "day")))


def test_the_key_of_a_materialized_view_contains_the_partition_columns() -> None:
    said = {"key.scope": "table", "view.query": "SELECT 1"}
    check_key_scope(("id", "day"), ("day",), said)
    with pytest.raises(MetaError) as refused:
        check_key_scope(("id",), ("day",), said)
    assert refused.value.reason == "KEY_LACKS_PARTITION"


def test_without_a_key_there_is_no_scope_of_it() -> None:
    check_key_scope((), ("day",), {})
    with pytest.raises(MetaError) as refused:
        check_key_scope((), ("day",), {"key.scope": "partition"})
    assert refused.value.reason == "KEY_SCOPE_WITHOUT_KEY"
