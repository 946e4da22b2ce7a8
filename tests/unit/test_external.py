"""One spelling for the path of an external file, one identity for all its spellings."""

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.external import canonical_file, identity_of, locate

TABLE = "0190f7a1-0000-7000-8000-0000000000aa"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("/a/b.parquet", "/a/b.parquet"),
        ("//a///b.parquet", "/a/b.parquet"),
        ("/a/./c/../b.parquet", "/a/b.parquet"),
        ("file:/a/b.parquet", "/a/b.parquet"),
        ("file:///a/b.parquet", "/a/b.parquet"),
        ("FILE://localhost/a/b.parquet", "/a/b.parquet"),
        ("file:///a/x%20y%252F.parquet", "/a/x y%2F.parquet"),
        ("/a/x%20y.parquet", "/a/x%20y.parquet"),
        ("S3A://bucket//a/../b.parquet", "s3a://bucket/b.parquet"),
        ("s3://bucket/day=a%2Fb/x.parquet", "s3://bucket/day=a%2Fb/x.parquet"),
        ("abfss://box@account.dfs.core.windows.net/x", "abfss://box@account.dfs.core.windows.net/x"),
        ("hdfs://nn:8020/x", "hdfs://nn:8020/x"),
        ("/a/it's #1?.parquet", "/a/it's #1?.parquet"),
    ],
)
def test_a_path_is_stored_in_one_spelling(given: str, stored: str) -> None:
    assert canonical_file(given) == stored
    assert canonical_file(stored) == stored


@pytest.mark.parametrize(
    "given",
    [
        "",
        "a/b.parquet",
        "./b.parquet",
        "~/b.parquet",
        "/a/b/",
        "/",
        "/../b.parquet",
        "file:b.parquet",
        "file://host/b.parquet",
        "file:///a/%2e%2e/%2e%2e/b.parquet",
        "s3:/bucket/b.parquet",
        "s3:///b.parquet",
        "s3://bucket",
        "s3://bucket/..",
        "/a\\b.parquet",
        "/a\nb.parquet",
        "file:///a%0Ab.parquet",
        "http://place/b.parquet",
        "HTTPS://place/b.parquet",
        "s3://key:SECRET@bucket/b.parquet",
        "s3://SECRET@bucket/b.parquet",
        "hdfs://user:SECRET@nn/b.parquet",
        "abfss://box:SECRET@account/b.parquet",
        "s3://bucket/b.parquet?X-Amz-Signature=SECRET",
        "gs://bucket/b.parquet#SECRET",
        "file:///b.parquet?sig=SECRET",
        "https://account.blob.core.windows.net/b.parquet?sv=SECRET",
    ],
)
def test_what_is_no_plain_absolute_path_is_refused_without_its_secret(given: str) -> None:
    with pytest.raises(MetaError) as caught:
        canonical_file(given)
    assert caught.value.reason == "PATH_INVALID"
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "spellings",
    [
        [
            "/a/x y.parquet",
            "file:/a/x%20y.parquet",
            "file:///a/x y.parquet",
            "/a//x%20y.parquet",
            "/b/../a/x y.parquet",
        ],
        ["s3://b/k.parquet", "s3a://b/k.parquet", "S3N://B//k.parquet", "s3://b/./k%2Eparquet"],
        ["abfs://c@a/x", "abfss://c@a/x"],
    ],
)
def test_a_file_has_one_identity_under_every_spelling(spellings: list[str]) -> None:
    assert len({identity_of(path) for path in spellings}) == 1
    assert identity_of(spellings[0]) != identity_of(spellings[0] + "2")


def test_the_identity_of_what_was_stored_before_is_never_refused() -> None:
    assert identity_of("no/absolute path?") == "no/absolute path?"


@pytest.mark.parametrize(
    "path",
    [
        f"/lake/{TABLE}/t/0/x.parquet",
        f"/lake/{TABLE.upper()}/t/0/x.parquet",
        f"s3://b/lake//{TABLE}/t/./0/x.parquet",
        f"s3://b/lake/%30{TABLE[1:]}/t/0/x.parquet",
        f"s3://b/lake/%2530{TABLE[1:]}/t%2F0/x.parquet",
        f"/lake/a/%2e%2e/{TABLE}/t/0/x.parquet",
    ],
)
def test_a_tables_folder_is_found_in_a_path(path: str) -> None:
    found = locate(path)
    assert found.table_ids == (TABLE,)
    assert found.inside(TABLE) == "t/0/x.parquet"


def test_a_location_holds_what_lies_below_it() -> None:
    for place in ("/in", "file:///in/", "/in/../in"):
        assert locate("/in/x").lies_in(locate(place))
        assert not locate("/inside/x").lies_in(locate(place))
    assert locate("s3a://b/x").lies_in(locate("s3://b"))
    assert not locate("s3a://bb/x").lies_in(locate("s3://b"))
    assert locate("/x").lies_in(locate("/"))
