"""Bugs of the web console."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

CONSOLE: Final = "worker/console/"
ATTACKS: Final = "tests/console/test_security.py"
LOGINS: Final = "tests/console/test_provider_login.py"

BUGS: Final = (
    Bug(
        "the console writes names as HTML",
        CONSOLE + "rendering.py",
        (("autoescape=True", "autoescape=False"),),
        own_tests=(ATTACKS, "-k", "are_text"),
    ),
    Bug(
        "the console takes forms of other sites",
        CONSOLE + "sessions.py",
        (("return bool(session_id) and hmac", "return True or hmac"),),
        own_tests=("tests/console/test_routes.py", "-k", "this_session"),
    ),
    Bug(
        "the console shows its callers what its own token may read",
        CONSOLE + "serve.py",
        (("= Callers(by_token,", "= Callers(connect_by(server, folder, CLIENT, uses_own=True),"),),
        own_tests=(ATTACKS, "-k", "hidden"),
    ),
    Bug(
        "the console answers under any host name",
        CONSOLE + "guard.py",
        (("if self._hosts and host not in self._hosts:", "if not self._hosts and host in self._hosts:"),),
        own_tests=(ATTACKS, "-k", "another_host"),
    ),
    Bug(
        "a login to the console goes on to another site",
        CONSOLE + "guard.py",
        ((' and not text.startswith("//") and not (parts.scheme or parts.netloc)', ""),),
        own_tests=(ATTACKS, "-k", "within_the_console"),
    ),
    Bug(
        "a login to the console at a provider can be finished in another browser",
        CONSOLE + "provider_login.py",
        (('not hmac.compare_digest(self._sessions.login_secret("state", login_id), _ascii(state))', "not state"),),
        own_tests=(LOGINS, "-k", "counts_in_the_browser"),
    ),
    Bug(
        "the console takes an ID token of another login",
        CONSOLE + "provider.py",
        (('if claims.get("nonce") != nonce:', "if False:"),),
        own_tests=(LOGINS, "-k", "code_of_another_login"),
    ),
    Bug(
        "a login to the console leaves the session before it open",
        CONSOLE + "entrance.py",
        (("        sessions.end(sessions.read_id(request.cookies))\n", ""),),
        own_tests=(LOGINS, "-k", "the_one_before_ends"),
    ),
    Bug(
        "the console restores a version without a confirmation",
        CONSOLE + "versions.py",
        (('    if visit.form.get("confirm") != table.name:', "    if False:"),),
        own_tests=("tests/console/test_pages.py", "-k", "restored"),
    ),
    Bug(
        "the console shows the newest files of a table as those of any version",
        CONSOLE + "files.py",
        (("list_files(table.table_id, version=number)", "list_files(table.table_id)"),),
        own_tests=("tests/console/test_pages.py", "-k", "files_show"),
    ),
    Bug(
        "the console takes an ID token over plain http that nobody checks",
        CONSOLE + "provider.py",
        (('    if settings.bearer != "id" and not token.startswith("https:"):\n', "    if False:\n"),),
        own_tests=("tests/console/test_provider.py", "-k", "over_tls"),
    ),
    Bug(
        "the console carries the figures of a table on without the files that went",
        CONSOLE + "table_contents.py",
        (("            newer.add(part.removed, -1)\n", ""),),
        own_tests=("tests/console/test_table_contents.py",),
    ),
    Bug(
        "the console fails where somebody reads a dropped table",
        CONSOLE + "visits.py",
        (("(NotFoundError, DeniedError, BlockedError)", "(NotFoundError, DeniedError)"),),
        own_tests=("tests/console/test_pages.py", "-k", "dropped_table"),
    ),
    Bug(
        "the console lights the cell of another race",
        CONSOLE + "race_rules.py",
        (("(conflict.winner_operation, conflict.operation)", "(conflict.operation, conflict.winner_operation)"),),
        own_tests=("tests/console/test_parts.py", "-k", "is_lit"),
    ),
    Bug(
        "a branch that the console makes at a version has the newest rows",
        CONSOLE + "versions.py",
        (("        if number < table.head_version:\n", "        if number > table.head_version:\n"),),
        own_tests=("tests/console/test_pages.py", "-k", "begins_at_a_version"),
    ),
    Bug(
        "the failure of one visitor's call is shown to another one",
        CONSOLE + "table_summaries.py",
        (("making.exception() is not None and not is_own:", "False:"),),
        own_tests=("tests/console/test_table_summaries.py", "-k", "of_another"),
    ),
    Bug(
        "the console calls a view fresh whose source has a new commit",
        CONSOLE + "views.py",
        (("max(parent.head_version - read_to, 0)", "0"),),
        own_tests=("tests/console/test_pages.py", "-k", "views_show"),
    ),
    Bug(
        "the console's map of partitions leaves the small ones out",
        CONSOLE + "tables.py",
        (("    if len(partitions) > len(shown):", "    if False:"),),
        own_tests=("tests/console/test_tree_map.py",),
    ),
    Bug(
        "the console leaves out what branches keep",
        CONSOLE + "retention.py",
        (("is_changed = table.create_time_us <= branch.time_us < table", "is_changed = branch.time_us > table"),),
        own_tests=("tests/console/test_pages.py", "-k", "retention_shows"),
    ),
    Bug(
        "a list of tables names those that its caller may not read, as the place to go on",
        "metaservice/rpc/services/catalog.py",
        (("contains, self._gate.reads(context)", "contains, None"),),
        own_tests=("tests/integration/test_rights.py", "-k", "betray"),
    ),
    Bug(
        "the console counts adopted files as wasted work",
        CONSOLE + "races.py",
        (("            if not each.adopted_by:\n", "            if each:\n"),),
        own_tests=("tests/console/test_parts.py", "-k", "wasted"),
    ),
)
