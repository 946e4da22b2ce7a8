"""What temporary credentials for the files of a table open: a session policy, as S3's token services take it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

SCHEME: Final = "s3://"
WILD: Final = re.compile(r"[*?$]")  # what a policy takes for a pattern or a variable
NAME_MAX: Final = 64  # of a session, by S3's token services
ODD: Final = re.compile(r"[^\w+=,.@-]", re.ASCII)
READS: Final = ("s3:GetObject",)
WRITES: Final = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of a table's files in a bucket."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"


def folder_of(warehouse: str, table_id: str) -> TableFolder | None:
    """The table's folder below a warehouse; None: credentials can't be limited to it."""
    if not warehouse.startswith(SCHEME) or WILD.search(warehouse):
        return None
    bucket, _, key = warehouse.removeprefix(SCHEME).strip("/").partition("/")
    return TableFolder(bucket, f"{key}/{table_id}".lstrip("/")) if bucket else None


def session_policy(folder: TableFolder, *, write: bool, partition: str = "aws") -> dict[str, Any]:
    """Objects below the folder, and a list of them. Nothing else of the bucket."""
    bucket = f"arn:{partition}:s3:::{folder.bucket}"
    below = f"{folder.key}/*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": [*READS, *(WRITES if write else ())], "Resource": [f"{bucket}/{below}"]},
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [bucket],
                "Condition": {"StringLike": {"s3:prefix": [folder.key, below]}},
            },
        ],
    }


def partition_of(role: str) -> str:
    """The part of the cloud that a role is in: `arn:aws-cn:iam::…` is in `aws-cn`."""
    words = role.split(":")
    return words[1] if words[0] == "arn" and len(words) > 1 and words[1].startswith("aws") else "aws"


def session_name(principal: str) -> str:
    """What the store's own log calls the caller."""
    return f"laketx-{ODD.sub('-', principal)}"[:NAME_MAX]
