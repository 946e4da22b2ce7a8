"""Commands as other systems' tools call them, and which they are here."""

from collections.abc import Collection
from typing import Final

_WORDS: Final = {
    "compaction run": "optimize compact rewrite-data-files zorder",
    "purge run": "vacuum expire expire-snapshots remove-orphan-files clean cleanup gc",
    "versions": "history snapshots commits log",
    "table show": "describe desc detail schema info spec properties location uuid",
    "table list": "list ls tables list-tables show-tables",
    "table create": "create create-table",
    "table alter": "alter alter-table",
    "table rename": "rename rename-table",
    "table drop": "drop drop-table",
    "table undrop": "undrop undrop-table",
    "namespace list": "namespaces databases schemas list-namespaces",
    "tag list": "tags refs list-refs",
    "head": "cat scan preview",
    "sql": "query select shell",
    "load": "insert append copy ingest",
    "import": "convert register",
    "serve": "server start",
    "fsck": "repair verify",
}
COMMAND_OF: Final = {word: command for command, words in _WORDS.items() for word in words.split()}


def command_meant(word: str, path: str, known: Collection[str]) -> str:
    """The whole command that a word of another tool means in a group, as `laketx versions`; empty where none does.

    A group's own command comes first: `laketx view describe` means `laketx view show`.
    """
    command = COMMAND_OF.get(word.lower().replace("_", "-"))
    if command is None:
        return ""
    last = command.split()[-1]
    root, *groups = path.split()
    if groups and last in known:
        return f"{path} {last}"
    return f"{root} {command}" if groups in ([], ["table"]) else ""
