"""Row counts and digests of a compaction's inputs and outputs. Pure; no file is opened here."""

from __future__ import annotations

from collections.abc import Mapping

from metaservice.core.errors import MetaError, invalid
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Entry, Group

VERIFY = "compaction.verify"


def check_digests(group: Group, outputs: Mapping[str, Entry], meta: TableMeta) -> None:
    """Refuses a group whose outputs don't hold the rows of its inputs.

    Given counts and digests are always compared. With the property set to `true` both digests are required; if it isn't
    set, a compaction without digests is accepted.
    """
    written = sum(outputs[path].rows for path in group.outputs)
    given = (bool(group.input_digest), bool(group.output_digest))
    asked = meta.properties.get(VERIFY) == "true"
    if any(given) != all(given) or (asked and not all(given)):
        raise invalid("COMPACTION_DIGEST_MISSING", **_facts(group))
    counted = all(count in (None, written) for count in (group.input_rows, group.output_rows))
    if not counted or group.input_digest != group.output_digest:
        raise _mismatch(group, written)


def _mismatch(group: Group, written: int) -> MetaError:
    said = {
        "input_rows": group.input_rows,
        "output_rows": group.output_rows,
        "input_digest": group.input_digest.hex() or None,
        "output_digest": group.output_digest.hex() or None,
    }
    facts = {**_facts(group), "rows": written, **{name: value for name, value in said.items() if value is not None}}
    return invalid(
        "COMPACTION_DIGEST_MISMATCH",
        **facts,
    )


def _facts(group: Group) -> dict[str, object]:
    return {"partition": group.partition, "bucket": group.bucket}
