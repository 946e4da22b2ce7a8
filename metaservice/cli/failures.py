"""How a command fails: its exit code, and what its user reads on stderr.

Every failure says what is wrong (a reason and facts) and what to do next; with `-o json` it is one document on stderr.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from metaservice.client import (
    CommitOutcomeUnknownError,
    ConflictError,
    ErrorKind,
    LakeTXError,
    MetaServiceError,
)


class Exit(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNAVAILABLE = 3
    CONFLICT = 4
    NOT_FOUND = 5
    UNKNOWN = 6
    CORRUPT = 7
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANING: Final[Mapping[Exit, str]] = {
    Exit.DONE: "Done.",
    Exit.REFUSED: "The service refused, a question was answered with no, or the output can't be written.",
    Exit.USAGE: "The command line is invalid, or `--yes` is missing where nobody can be asked.",
    Exit.UNAVAILABLE: "The service did not answer within `--timeout`, or does not accept work.",
    Exit.CONFLICT: "The commit lost a race, or (`explain`) would lose one.",
    Exit.NOT_FOUND: "The namespace, table, version, transaction, pin or task does not exist, or no longer does.",
    Exit.UNKNOWN: "A change got no answer and may have happened: ask for its outcome.",
    Exit.CORRUPT: "The service's records are damaged, or `check` or `fsck` found a difference.",
    Exit.INTERRUPTED: "Ended by Ctrl-C.",
    Exit.PIPE_CLOSED: "The reader closed the output early, as `head` does.",
}
assert MEANING.keys() == set(Exit)

EXIT_OF_KIND: Final[Mapping[ErrorKind, Exit]] = {
    ErrorKind.INVALID: Exit.REFUSED,
    ErrorKind.NOT_FOUND: Exit.NOT_FOUND,
    ErrorKind.ALREADY_EXISTS: Exit.REFUSED,
    ErrorKind.BLOCKED: Exit.REFUSED,
    ErrorKind.GONE: Exit.NOT_FOUND,
    ErrorKind.STALE: Exit.REFUSED,
    ErrorKind.EXHAUSTED: Exit.UNAVAILABLE,
    ErrorKind.DENIED: Exit.REFUSED,
    ErrorKind.UNAVAILABLE: Exit.UNAVAILABLE,
    ErrorKind.CORRUPT: Exit.CORRUPT,
}
assert EXIT_OF_KIND.keys() == set(ErrorKind)

EXIT_OF_REASON: Final[Mapping[str, Exit]] = {"TABLE_DROPPED": Exit.NOT_FOUND, "TABLE_ID_OUTDATED": Exit.NOT_FOUND}

NEXT_OF_KIND: Final[Mapping[ErrorKind, str]] = {
    ErrorKind.INVALID: "correct what the facts name, and try again",
    ErrorKind.NOT_FOUND: "look at what there is: `laketx table list`, `laketx txn list`",
    ErrorKind.ALREADY_EXISTS: "pick another name",
    ErrorKind.BLOCKED: "change what the facts name first",
    ErrorKind.GONE: "ask for a newer version: `laketx versions TABLE`",
    ErrorKind.STALE: "it has ended already: `laketx txn show TXN` says how",
    ErrorKind.EXHAUSTED: "try again later, with less",
    ErrorKind.DENIED: "ask for the rights",
    ErrorKind.UNAVAILABLE: "is a service running there? `laketx serve` starts one, --server names another",
    ErrorKind.CORRUPT: "stop writing and call the operator of the service",
}
assert NEXT_OF_KIND.keys() == set(ErrorKind)

NEXT_OF_REASON: Final[Mapping[str, str]] = {
    "BACKUP_EXISTS": "name another folder, such as one with the time in it",
    "BACKUP_PARTIAL": "remove the unfinished backup, or name another folder",
    "BACKUP_PATH_OUTSIDE": "give a path below the fact `root`, or one without a leading /",
    "BACKUP_RUNNING": "wait until the other backup is done",
    "BRANCH_EXISTS": "pick another name, or look at the branch: `laketx branch show NAME`",
    "BRANCH_HAS_CHILDREN": "`laketx branch merge` or `laketx branch drop` the branch that the fact `child` names",
    "BRANCH_IN_USE": "`laketx txn list` shows the open transactions, `laketx txn abort ID` ends one",
    "BRANCH_NAME_INVALID": "pick a name of these characters: `laketx branch create NAME`",
    "BRANCH_UNKNOWN": "`laketx branch list` shows the branches that there are",
    "COLUMN_FIXED": "a key or partition column stays: make a new table with `laketx table create`",
    "COLUMN_UNKNOWN": "`laketx table show TABLE` lists the columns",
    "CLOCKS_DISAGREE": "look at the clock of the service's machine; when it is right: `laketx clock confirm`",
    "COMMITS_AGO_INVALID": "name the version instead: `laketx versions TABLE`",
    "CURSOR_MOVED": "read on from where it stands: `laketx cursor list TABLE`",
    "CURSOR_UNKNOWN": "`laketx cursor list TABLE` shows those that there are",
    "DIFFERENCE_TOO_LARGE": "take fewer versions at once, or `laketx changes` in the mode log",
    "CREDENTIALS_INVALID": "correct LAKETX_CA_FILE, LAKETX_CERT_FILE and LAKETX_KEY_FILE",
    "DISK_FULL": "make room on the disk of the service; nothing has to be restarted",
    "FOLDER_IS_A_STORE": "a service that was started by hand owns it: use --server, or name the folder above it",
    "HISTORY_CHANGED": "the store was restored from a backup: begin again from `laketx versions TABLE`",
    "NAMESPACE_EXISTS": "use it, or pick another name; --if-not-exists takes it as it is",
    "NAMESPACE_NOT_EMPTY": "drop its tables and views first: `laketx table list --namespace NAME`, `laketx view list`",
    "NAMESPACE_UNKNOWN": "`laketx namespace list` shows those that there are, `laketx namespace create NAME` makes one",
    "ONLY_BY_MERGE": "`laketx branch create NAME`, change TABLE@NAME, then `laketx branch merge NAME`",
    "PIN_UNKNOWN": "it ended or ran out: `laketx pins list`; pin again",
    "PROPERTY_UNKNOWN": "put properties of your own under user.: --set user.NAME=VALUE",
    "PURGE_HELD": "look at what was restored, then `laketx purge release`",
    "RANGE_INVALID": "turn the range round: --from is the older version",
    "REPLACE_CHANGES_LAYOUT": "partitioning, key and buckets stay: drop the table and create it",
    "RETENTION_OVER": "it is gone for good: create it anew",
    "RPC_DEADLINE_EXCEEDED": "it took longer than --timeout: give it more",
    "RPC_UNIMPLEMENTED": "the service is older than this command, or can't do this",
    "SCHEMA_VERSION_INVALID": "`laketx table schemas TABLE` lists them",
    "SERVER_FAILED": "the fact `log` names the file with all that it said",
    "SERVER_OTHER_RELEASE": "close what uses the folder, wait until its service has ended, try again",
    "TABLE_DROPPED": "`laketx table undrop TABLE` brings it back while its retention lasts",
    "TABLE_EXISTS": "pick another name, or say --if-not-exists or --or-replace",
    "TABLE_UNKNOWN": "`laketx table list` shows the tables that there are",
    "TABLE_NOT_ON_BRANCH": "`laketx branch show NAME` shows the tables that the branch is limited to",
    "TLS_FAILED": "correct the address (laketxs:// has TLS), LAKETX_CA_FILE, LAKETX_CERT_FILE and LAKETX_KEY_FILE",
    "TOKEN_COMMAND_FAILED": "run what LAKETX_TOKEN_COMMAND says by hand",
    "TOKEN_MISSING": "correct LAKETX_TOKEN, LAKETX_TOKEN_FILE or LAKETX_TOKEN_COMMAND",
    "TOKEN_NEEDS_TLS": "use laketxs://host:port",
    "TRANSACTION_UNKNOWN": "outcomes are kept for days, not for ever: `laketx txn list` shows those that are known",
    "TYPE_NOT_WIDER": "add a column of the new type, or name a wider type (docs/catalog.md)",
    "TYPE_UNKNOWN": "write types in Spark's words: bigint, string, decimal(10,2), date, timestamp, array<string>, …",
    "VERSION_IN_FUTURE": "the fact `head` is the newest version",
    "VERSION_RETIRED": "the fact `oldest` is the oldest version that is kept",
    "VIEW_EXISTS": "pick another name; `laketx view drop NAME` drops the view",
    "VIEW_UNKNOWN": "`laketx view list` shows the views that there are",
    "WATCH_ENDED": "watch again from the last version seen: --after N",
}


@dataclass(eq=False)
class CommandError(Exception):
    """A command can't go on."""

    code: Exit
    reason: str
    message: str
    facts: Mapping[str, str] = field(default_factory=dict)
    next_step: str = ""
    usage: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def as_dict(self) -> dict[str, object]:
        return {
            "reason": self.reason,
            "message": self.message,
            "facts": dict(sorted(self.facts.items())),
            "next": self.next_step,
            "exit_code": int(self.code),
        }


def usage_failure(message: str, *, next_step: str = "", usage: str = "") -> CommandError:
    return CommandError(Exit.USAGE, "USAGE", message, next_step=next_step, usage=usage)


def failure_of(error: LakeTXError, server: str) -> CommandError:
    """Convert an error of a call to a user's terms."""
    match error:
        case MetaServiceError():
            return _refused(error, server)
        case ConflictError():
            conflict = error.conflict
            facts = {"winner": conflict.winner_txn_id, "winner_version": str(conflict.winner_version)}
            next_step = f"laketx show {conflict.table_id} --version {conflict.winner_version}"
            return CommandError(Exit.CONFLICT, "CONFLICT", str(error), facts, f"{next_step}; then try again")
        case CommitOutcomeUnknownError():
            next_step = f"laketx txn outcome {error.txn_id}"
            return CommandError(Exit.UNKNOWN, "OUTCOME_UNKNOWN", str(error), {"txn_id": error.txn_id}, next_step)
        case _:
            return CommandError(Exit.REFUSED, "FAILED", str(error))


def _refused(error: MetaServiceError, server: str) -> CommandError:
    code = EXIT_OF_REASON.get(error.reason, EXIT_OF_KIND[error.kind])
    next_step = NEXT_OF_REASON.get(error.reason, NEXT_OF_KIND[error.kind])
    if error.reason == "SERVER_UNREACHABLE" and "address" in error.facts:
        return CommandError(code, error.reason, f"no service answers at {server}", {}, next_step)
    if error.reason in ("RPC_UNAVAILABLE", "SESSION_BROKEN"):
        return CommandError(code, error.reason, f"no service answers at {server}", {"detail": error.message}, next_step)
    facts = {**error.facts, **({"server": server} if error.kind is ErrorKind.UNAVAILABLE else {})}
    return CommandError(code, error.reason, error.message or error.kind.value, facts, next_step)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a question with the nearest of the words; empty if none is near."""
    near = nearest(word, words)
    return f"did you mean `{near}`?" if near else ""


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the nearest word; if none is near, compare without namespaces."""
    folded = {name.lower(): name for name in words}
    matches = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    if matches:
        return folded[matches[0]]
    last = {name.rpartition(".")[2]: full for name, full in folded.items()}
    matches = difflib.get_close_matches(word.lower().rpartition(".")[2], last, n=1, cutoff=0.8)
    return last[matches[0]] if matches else ""
