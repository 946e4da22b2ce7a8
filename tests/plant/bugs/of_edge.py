"""Bugs of the edge and of the client."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

BUGS: Final = (
    Bug(
        "bounds of floats in external files are trusted",
        "metaservice/rpc/convert/plans.py",
        (('if kind == "real" and file.external:', 'if kind == "integer" and file.external:'),),
    ),
    Bug(
        "conditions on an old version use the newest column names",
        "metaservice/rpc/convert/plans.py",
        (("reads.meta_at(table, version) if has_names", "table.meta if has_names"),),
    ),
    Bug(
        "the calls in a session's frames are not checked for rights",
        "metaservice/rpc/services/session.py",
        (
            (
                "if method is not None:\n                    self._gate.check",
                "if method is None:\n                    self._gate.check",
            ),
        ),
        own_tests=("tests/integration/test_rights.py", "-k", "session"),
    ),
    Bug(
        "a declared name stays the principal",
        "metaservice/rpc/auth/authorization.py",
        (("        given.name = who.principal\n", ""),),
        own_tests=("tests/integration/test_rights.py", "-k", "name"),
    ),
    Bug(
        "a hidden table can be distinguished from a missing table",
        "metaservice/rpc/auth/caller.py",
        (("if table is None or actual < READER:", "if table is None:"),),
        own_tests=("tests/integration/test_rights.py", "-k", "seems"),
    ),
    Bug(
        "a token signed with another key is accepted",
        "metaservice/rpc/auth/oidc.py",
        (('options={"require"', 'options={"verify_signature": False, "require"'),),
        own_tests=("tests/integration/test_identity.py", "-k", "key"),
    ),
    Bug(
        "a token is read without bounds",
        "metaservice/rpc/auth/oidc.py",
        (("header, _ = _parts(token)", "header = jwt.get_unverified_header(token)"),),
        own_tests=("tests/unit/test_foreign.py", "-k", "nests"),
    ),
    Bug(
        "an exception while a token is parsed ends the service",
        "metaservice/rpc/auth/authentication.py",
        (('with foreign("the proof"):', "if True:"),),
        own_tests=("tests/unit/test_foreign.py", "-k", "whatever_a_proof"),
    ),
    Bug(
        "a truncated answer ends the service",
        "metaservice/shared/outbound_requests.py",
        (("    with foreign(url[:200]):", "    if True:"),),
        own_tests=("tests/unit/test_foreign.py", "-k", "garbage_is_its_callers"),
    ),
    Bug(
        "a token outlives its provider's key",
        "metaservice/rpc/auth/authentication.py",
        (("return proof.changes == self._oidc.changes and", "return"),),
        own_tests=("tests/unit/test_foreign.py", "-k", "outlive"),
    ),
    Bug(
        "a repeated creation of a table makes its caller admin again",
        "metaservice/rpc/services/catalog.py",
        (("        if not catalog.would_make(meta, mode):\n", "        if mode is None:\n"),),
        own_tests=("tests/integration/test_rights.py", "-k", "repeated_creation_of_a_table"),
    ),
    Bug(
        "a repeated creation of a namespace makes its caller admin again",
        "metaservice/rpc/services/catalog.py",
        (("        if namespaces.is_known(definition.name):\n", "        if not definition.name:\n"),),
        own_tests=("tests/integration/test_rights.py", "-k", "repeated_creation_of_a_namespace"),
    ),
    Bug(
        "a plan that pins its version doesn't keep it",
        "metaservice/rpc/services/scans.py",
        (
            (
                "lease_ms = self._calls.pins.pin(requested)\n",
                "lease_ms = self._calls.pins.pin(requested)\n                self._calls.pins.unpin(pin.pin_id)\n",
            ),
        ),
        own_tests=("tests/arrow/test_retired.py", "-k", "planned"),
    ),
    Bug(
        "a watch continues after its right was revoked",
        "metaservice/rpc/auth/authorization.py",
        (("self.gate.check_again(who, self.method, request)", "self.gate.still(who)"),),
        own_tests=("tests/integration/test_rights.py", "-k", "watch_ends"),
    ),
    Bug(
        "a refusal for rights is not in the audit",
        "metaservice/rpc/pipeline/interceptor.py",
        (("            self._turned_away(refusal, visit, context)\n            raise", "            raise"),),
        own_tests=("tests/integration/test_identity.py", "-k", "audited"),
    ),
    Bug(
        "the event of a conflict in a new table lacks the table's name",
        "metaservice/cli/event_feed.py",
        (("if table_ids - self._names.keys():", "if self._names is None:"),),
        own_tests=("tests/integration/test_events.py", "-k", "since_the_last_look"),
    ),
)
