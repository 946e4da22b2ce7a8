"""What temporary keys of S3 open."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.core.storage_scope import (
    NAME_MAX,
    ODD,
    TableFolder,
    folder_of,
    partition_of,
    session_name,
    session_policy,
)

TABLE = "0192d3b0-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("warehouse", "bucket", "key"),
    [
        ("s3://lake/files", "lake", f"files/{TABLE}"),
        ("s3://lake", "lake", TABLE),
        ("s3://lake/", "lake", TABLE),
        ("s3://lake/a/b c/", "lake", f"a/b c/{TABLE}"),
    ],
)
def test_a_table_has_its_folder(warehouse: str, bucket: str, key: str) -> None:
    found = folder_of(warehouse, TABLE)
    assert found == TableFolder(bucket, key)
    assert found.uri == f"s3://{bucket}/{key}"


@pytest.mark.parametrize(
    "warehouse", ["", "/lake", "gs://lake/x", "s3://", "s3://lake/a*", "s3://lake/?", "s3://l/${x}"]
)
def test_what_a_policy_cannot_name_has_none(warehouse: str) -> None:
    assert folder_of(warehouse, TABLE) is None


def test_a_reader_reads_and_a_writer_writes_below_the_folder_alone() -> None:
    folder = TableFolder("lake", f"files/{TABLE}")
    reads, lists = session_policy(folder, write=False)["Statement"]
    assert reads["Action"] == ["s3:GetObject"]
    assert reads["Resource"] == [f"arn:aws:s3:::lake/files/{TABLE}/*"]
    assert (lists["Action"], lists["Resource"]) == (["s3:ListBucket"], ["arn:aws:s3:::lake"])
    assert lists["Condition"] == {"StringLike": {"s3:prefix": [f"files/{TABLE}", f"files/{TABLE}/*"]}}
    writes, _ = session_policy(folder, write=True, partition="aws-cn")["Statement"]
    assert {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"} < set(writes["Action"])
    assert writes["Resource"] == [f"arn:aws-cn:s3:::lake/files/{TABLE}/*"]


@given(st.from_regex(r"s3://[a-z0-9.-]{3,63}(/[^\x00-\x1f]{0,40}){0,3}", fullmatch=True), st.uuids(), st.uuids())
def test_no_policy_opens_another_table(warehouse: str, one: object, other: object) -> None:
    folder, next_door = folder_of(warehouse, str(one)), folder_of(warehouse, str(other))
    if folder is None or next_door is None or one == other:
        return
    policy = session_policy(folder, write=True)
    [pattern] = policy["Statement"][0]["Resource"]
    object_of = "arn:aws:s3:::{}/{}/part.parquet".format
    brackets = str.maketrans({"[": "(", "]": ")"})  # fnmatch has classes, policies have none
    assert fnmatchcase(object_of(folder.bucket, folder.key).translate(brackets), pattern.translate(brackets))
    assert not fnmatchcase(object_of(next_door.bucket, next_door.key).translate(brackets), pattern.translate(brackets))
    assert len(json.dumps(policy, separators=(",", ":"), ensure_ascii=False)) <= 2048  # what STS takes


@given(st.text(max_size=300))
def test_a_session_has_a_name_that_the_store_takes(principal: str) -> None:
    found = session_name(principal)
    assert 2 <= len(found) <= NAME_MAX
    assert not ODD.search(found)


@pytest.mark.parametrize(
    ("role", "partition"),
    [
        ("arn:aws:iam::123456789012:role/lake", "aws"),
        ("arn:aws-us-gov:iam::1:role/lake", "aws-us-gov"),
        ("arn:minio:iam:::role/x", "aws"),
        ("lake", "aws"),
    ],
)
def test_the_part_of_the_cloud_is_that_of_the_role(role: str, partition: str) -> None:
    assert partition_of(role) == partition
