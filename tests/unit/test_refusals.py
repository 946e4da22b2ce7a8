"""Refusals and their facts."""

from metaservice.core.errors import ErrorKind, invalid


def test_a_fact_may_be_called_as_what_a_refusal_has() -> None:
    found = invalid("FILE_KIND_INVALID", kind=7, reason="base", message="none")
    assert (found.kind, found.reason) == (ErrorKind.INVALID, "FILE_KIND_INVALID")
    assert found.facts == {"kind": "7", "reason": "base", "message": "none"}
