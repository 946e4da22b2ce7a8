"""What must hold, seen from outside: records in the store and every answer; nothing else is trusted."""

from __future__ import annotations

from dataclasses import dataclass, field

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import Operation
from metaservice.service.branch.replay import BRANCH, BRANCH_VERSION
from metaservice.service.decider.forking import is_on
from metaservice.service.decider.snapshots import stored_entries
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.port import prefix_end
from metaservice.store.records.branches import Fork
from protos.laketx.storage.v1 import records_pb2 as pb
from tests.simulation.logs import File, Log, Place, Rows, Spec, check

INSERT, OVERWRITE, ROWS, MINOR, MAJOR = "insert", "overwrite", "rows", "minor", "major"
CLASS = {
    Operation.INSERT: INSERT,
    Operation.OVERWRITE: OVERWRITE,
    Operation.UPDATE: ROWS,
    Operation.DELETE: ROWS,
    Operation.MINOR_COMPACT: MINOR,
    Operation.MAJOR_COMPACT: MAJOR,
}
FOLLOWS = {  # the published table, written down a second time: mine -> earlier ones that it may follow
    INSERT: {MINOR, MAJOR},
    OVERWRITE: {INSERT, OVERWRITE, ROWS, MINOR, MAJOR},
    ROWS: {MINOR, MAJOR},
    MINOR: {INSERT, ROWS},
    MAJOR: {MINOR},
}
REFUSALS = {"TRANSACTION_EXPIRED", "TRANSACTION_ABORTED", "TRANSACTION_ENDED", "METADATA_CHANGED", "TASK_CLAIM_LOST"}

BY_THE_CLOCK = {"TRANSACTION_ID_IN_FUTURE", "TRANSACTION_ID_TOO_OLD"}
OF_BRANCHES = {
    "TABLE_UNKNOWN",
    "TABLE_DROPPED",
    "TABLE_ID_OUTDATED",
    "APP_VERSION_MOVED",
}  # which have ended, or whose parent has moved

Final = tuple[object, ...]


@dataclass(slots=True)
class Expected:
    """What a client meant by a transaction, for the checks of its commit."""

    paths: dict[str, set[str]] = field(default_factory=dict)
    scopes: dict[str, set[str] | None] = field(default_factory=dict)
    reads: dict[str, set[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergeAnswer:
    """What its client is told about a merge; the tables with their last version and how many commits they got."""

    is_done: bool
    tables: tuple[tuple[str, int, int], ...]
    time_us: int


@dataclass(frozen=True, slots=True)
class Merge:
    """A commit that came by a merge: the fork that had it, its version there, and where the merge begins and ends."""

    fork: Log
    version: int
    start: int  # the first version of the parent that is of this merge
    is_forward: bool

    @property
    def winners(self) -> list[pb.CommitRecord]:
        assert self.fork.base is not None
        return self.fork.base.commits[self.fork.begin + 1 : self.start]


class Checker:
    """Hears answers and reads the log after every group."""

    def __init__(self, specs: list[Spec]) -> None:
        self.logs = {spec.table_id: Log(spec) for spec in specs}
        self.rows: dict[str, Rows] = {}
        self.sets: set[str] = set()  # paths of delete sets, which hide rows that nobody has
        self.expected: dict[str, Expected] = {}
        self.final: dict[str, Final] = {}
        self.begun: dict[str, object] = {}
        self.registered: dict[tuple[str, str, int], object] = {}
        self.doomed: set[str] = set()
        self.leases: dict[str, int] = {}
        self.renewed: set[str] = set()  # of these it is known that the service means the same lease
        self.expired: set[str] = set()
        self.answers = 0
        self.forks: dict[tuple[str, str], Log] = {}  # the newest, by the table and the branch
        self.merges: dict[str, MergeAnswer] = {}

    # -- answers --------------------------------------------------------------------------------------------------

    def hear(self, kind: str, txn_id: str, answer: object, now_ms: int) -> None:
        """Every answer that left the service, also one that its client never got."""
        self.answers += 1
        if isinstance(answer, MetaError):
            self._hear_refusal(kind, txn_id, answer)
        elif kind == "begin":
            check(self.begun.setdefault(txn_id, answer) == answer, "a repeated begin gets the first answer", txn_id)
            if txn_id not in self.final:
                self.leases.setdefault(txn_id, now_ms)
        elif kind.startswith("register"):
            known = self.registered.setdefault((txn_id, kind, 0), answer)
            check(known == answer, "a repeated register gets the first answer", txn_id, known, answer)
        elif kind == "renew":
            self.leases[txn_id] = now_ms
            self.renewed.add(txn_id)
            if answer is not None:
                self.doomed.add(txn_id)
        elif isinstance(answer, MergeAnswer) and answer.is_done:
            known = self.merges.setdefault(txn_id, answer)
            same = known.time_us == answer.time_us and set(answer.tables) <= set(known.tables)
            check(same, "a repeated merge gets the first answer", txn_id, known, answer)
        elif kind == "abort":
            self._end(txn_id, ("refused",))
        elif kind in ("commit", "append") and isinstance(answer, tuple):
            self._end(txn_id, answer)

    def _hear_refusal(self, kind: str, txn_id: str, error: MetaError) -> None:
        check(error.kind is not ErrorKind.CORRUPT, "no record is missing", error)
        if error.reason in BY_THE_CLOCK and kind in ("begin", "append"):
            return  # of an id that is not known: the clock of this run is another one than that of its client
        if error.reason in OF_BRANCHES and self._is_on_branch(txn_id):
            if kind in ("commit", "append"):
                self._end(txn_id, ("refused",))
            return
        check(error.reason in REFUSALS, "a request in order is not refused", kind, txn_id, error)
        ran_out = error.reason != "TRANSACTION_EXPIRED" or txn_id not in self.renewed & self.leases.keys()
        check(ran_out, "a lease that was renewed holds until it runs out", kind, txn_id, error)
        lost = error.reason == "TASK_CLAIM_LOST" and kind != "begin"
        if lost or error.reason in ("TRANSACTION_EXPIRED", "TRANSACTION_ABORTED"):
            self._end(txn_id, ("refused",))
        elif kind == "commit":
            check(error.reason == "METADATA_CHANGED", "a commit has an outcome", txn_id, error)

    def _is_on_branch(self, txn_id: str) -> bool:
        return not txn_id or any(self.logs[table_id].base is not None for table_id in self.expected[txn_id].paths)

    def _end(self, txn_id: str, answer: Final) -> None:
        check(not (answer[0] == "COMMITTED" and txn_id in self.expired), "an expired transaction stays so", txn_id)
        check(not (answer[0] == "COMMITTED" and txn_id in self.doomed), "a lost race stays lost", txn_id)
        known = self.final.setdefault(txn_id, answer)
        check(known == answer, "an outcome never changes", txn_id, known, answer)
        self.leases.pop(txn_id, None)

    def hear_time(self, table_id: str, read_us: int, version: int) -> None:
        self.logs[table_id].answered.append((read_us, version))

    def paused(self, now_ms: int) -> None:
        """The service stood still until now: what was alive has a full lease."""
        self.leases = dict.fromkeys(self.leases, now_ms)

    def ran_out(self, now_ms: int, lease_ms: int) -> None:
        """A group has passed: what was due has expired."""
        for txn_id, since in list(self.leases.items()):
            if since + lease_ms <= now_ms:
                self.expired.add(txn_id)
                del self.leases[txn_id]

    # -- the log --------------------------------------------------------------------------------------------------

    def read_log(self, state: State) -> None:
        """Take in what is new; compare live entries with the replay. Forks come first: their commits are merged."""
        new = {
            raw_id: fork
            for raw_id, fork in state.forks.items()
            if not fork.is_gone and keys.uuid_text(raw_id) not in self.logs
        }
        while new:  # those that a refresh made, too, whether a client has asked for them or not
            for fork in [fork for fork in new.values() if fork.base not in new]:
                self._find_fork(state, new.pop(fork.raw_id))
        for log in reversed(list(self.logs.values())):
            if not log.has_ended:
                self._read(state, log)

    def _find_fork(self, state: State, fork: Fork) -> None:
        table_id, base = keys.uuid_text(fork.raw_id), self.logs[keys.uuid_text(fork.base)]
        self._take_new(state, base, fork.version + 1)
        branch = state.branches.get(fork.branch)
        if branch is not None and is_on(fork, branch):  # it shows the table as it was at that time
            base.answered.append((branch.time_us, fork.version))
        spec = Spec(table_id, base.spec.keyed, base.spec.profile)
        log = base.forked(spec, fork.version, fork.branch, self.rows)
        log.before = self.forks.get((base.spec.table_id, fork.branch))
        self.logs[table_id] = self.forks[base.spec.table_id, fork.branch] = log

    def _take_new(self, state: State, log: Log, end: int) -> list[bytes]:
        """The commits that the log lacks, below a version."""
        raw_id = keys.uuid_bytes(log.spec.table_id)
        start = keys.commit_key(raw_id, len(log.commits))
        fresh = [raw for _, raw in state.records.cursor().scan(start, keys.commit_key(raw_id, end))]
        for raw in fresh:
            log.raw.append(raw)
            self._take(log, pb.CommitRecord.FromString(raw))
        return fresh

    def _read(self, state: State, log: Log) -> None:
        if log.before is not None and not log.before.has_ended:
            self._read(state, log.before)  # a refresh has taken its commits
        table_id = log.spec.table_id
        raw_id = keys.uuid_bytes(table_id)
        fresh = self._take_new(state, log, limits.INTEGER_MAX)
        table = state.tables.get(table_id)
        if table is None:
            log.has_ended = log.base is not None
            check(log.has_ended or not log.commits, "a table that was created stays", table_id)
            return
        view = state.views.find(table_id)
        head = len(log.commits) - 1
        check(
            view is not None and view.head == table.head == head,
            "the head is the log's end",
            view,
            table.head,
            head,
        )
        if fresh or head == log.begin:
            self._compare(state, raw_id, log, head)

    def read_again(self, state: State) -> None:
        """After a crash: nothing that was there has changed."""
        cursor = state.records.cursor()
        for table_id, log in self.logs.items():
            if log.has_ended:
                continue
            prefix = keys.commits_prefix(keys.uuid_bytes(table_id))
            found = [raw for _, raw in cursor.scan(prefix, prefix_end(prefix))]
            check(found[: len(log.raw)] == log.raw, "a crash takes nothing that was durable", table_id)

    def _compare(self, state: State, raw_id: bytes, log: Log, version: int) -> None:
        found = {
            (one.partition, one.bucket, one.path): (one.data_version, one.added)
            for one in stored_entries(state.records.cursor(), raw_id, version)
        }
        expected = log.snapshots[version]
        check(found == expected, "live entries are the replayed log", version, found.items() ^ expected.items())

    def _take(self, log: Log, commit: pb.CommitRecord) -> None:
        check(commit.version == len(log.commits), "versions have no gaps", commit.version, len(log.commits))
        if log.commits:
            last = log.commits[-1]
            is_later = commit.time_us > last.time_us
            if commit.txn_id == last.txn_id:  # of one merge
                is_later = commit.time_us == last.time_us and bool(commit.properties[BRANCH])
            check(is_later, "commit times increase", commit.version)
            check(commit.read_version < commit.version, "a commit follows what it read", commit.version)
        for read_us, version in log.answered:
            late = commit.version <= version or commit.time_us > read_us
            check(late, "no commit at or below an answered time", commit.version, read_us)
        before_files, before_rows = dict(log.live), log.visible()
        for ref in commit.removed:
            gone = log.live.pop((ref.partition, ref.bucket, ref.path), None)
            check(gone is not None, "what is removed was live", commit.version, ref.path)
        for entry in commit.added:
            place = (entry.partition, entry.bucket, entry.path)
            check(place not in log.live, "what is added was not live", commit.version, entry.path)
            log.live[place] = File(entry.data_version, entry.added, self.rows[entry.path])
            self._check_row_ids(log, entry)
        merge = self._merge(log, commit)
        log.commits.append(commit)
        log.snapshots.append({place: (one.data_version, one.added) for place, one in log.live.items()})
        if merge is not None and merge.is_forward:
            there = merge.fork.snapshots[commit.version]
            check(merge.version == commit.version, "a merge in order takes each version", commit.version, merge.version)
            check(log.snapshots[-1] == there, "a merge in order takes what was there", commit.version)
        elif commit.version:
            self._check_meaning(log, commit, merge, before_files, before_rows)
            self._check_races(log, commit, merge)

    def _merge(self, log: Log, commit: pb.CommitRecord) -> Merge | None:
        branch = commit.properties.get(BRANCH)
        if not branch:
            return None
        start = commit.version
        while log.commits[start - 1].txn_id == commit.txn_id:
            start -= 1
        fork, version = self._source(log, branch), int(commit.properties[BRANCH_VERSION])
        check(fork.begin < version < len(fork.commits), "what is merged was committed on the branch", branch, version)
        return Merge(fork, version, start, start == fork.begin + 1)

    def _source(self, log: Log, branch: str) -> Log:
        """The fork from which commits came: one of the table, or by a refresh the fork that there was before."""
        if log.branch != branch:
            return self.forks[log.spec.table_id, branch]
        assert log.before is not None
        return log.before

    def _meant(self, log: Log, commit: pb.CommitRecord) -> tuple[Expected, str]:
        """What its client meant, and the table in which it was first committed."""
        branch = commit.properties.get(BRANCH)
        if not branch:
            return self.expected[commit.txn_id], log.spec.table_id
        fork = self._source(log, branch)
        return self._meant(fork, fork.commits[int(commit.properties[BRANCH_VERSION])])

    def _check_row_ids(self, log: Log, entry: pb.EntryRecord) -> None:
        if log.spec.keyed or entry.carries_row_ids or entry.is_delete_set or not entry.rows:
            return
        mine = (entry.first_row_id, entry.first_row_id + entry.rows, entry.path)
        check(mine[0] > 0, "every row has an id", entry.path)
        for first, end, path in log.row_ids_end:
            if path == mine[2]:  # merged
                check((first, end) == mine[:2], "a merged row keeps its id", mine, (first, end))
                return
            check(mine[1] <= first or end <= mine[0], "no row id is given twice", mine, (first, end, path))
        log.row_ids_end.append(mine)

    def _check_meaning(
        self,
        log: Log,
        commit: pb.CommitRecord,
        merge: Merge | None,
        files: dict[Place, File],
        rows: dict[object, object],
    ) -> None:
        operation = Operation(commit.operation)
        meant, table_id = self._meant(log, commit)
        paths = {entry.path for entry in commit.added}
        check(paths == meant.paths[table_id], "a commit adds what its transaction staged", commit.txn_id)
        after = log.visible()
        if operation in (Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.ALTER):
            check(after == rows, "a compaction changes no row", log.spec.profile, commit.version)
        elif operation in (Operation.INSERT, Operation.UPDATE, Operation.DELETE):
            mine = {(e.partition, e.bucket, k): v for e in commit.added for k, v in self.rows[e.path].items()}
            check(after == rows | mine, "an insert is seen, and changes nothing else", commit.version)
        elif operation is Operation.OVERWRITE:
            scope = meant.scopes[table_id]
            files = {place: one for place, one in files.items() if place[2] not in self.sets}
            outside = {place for place in files if scope is not None and place[0] not in scope}
            stay = outside | {place for place, one in files.items() if self._newer(log, commit, merge, one)}
            mine_places = {(e.partition, e.bucket, e.path) for e in commit.added}
            now = {place for place in log.live if place[2] not in self.sets}
            check(now == stay | mine_places, "an overwrite removes what it covers", commit.version)

    @staticmethod
    def _newer(log: Log, commit: pb.CommitRecord, merge: Merge | None, one: File) -> bool:
        end = commit.version if merge is None else merge.start
        return log.spec.profile.is_delta and commit.read_version < one.added < end

    def _check_races(self, log: Log, commit: pb.CommitRecord, merge: Merge | None) -> None:
        mine, winners = Operation(commit.operation), log.commits[commit.read_version + 1 : commit.version]
        read = log.snapshots[commit.read_version]
        if merge is not None:
            check(commit.read_version == merge.fork.begin, "a merged commit read its branch's base", commit.version)
            winners, read = merge.winners, merge.fork.snapshots[merge.version - 1]
        seen = {place[0] for place in read if place[2] not in self.sets}
        for winner in winners:
            theirs = Operation(winner.operation)
            self._check_reads(log, commit, winner)
            shared = set(commit.partitions) & set(winner.partitions)
            if not shared or mine not in CLASS or theirs not in CLASS:
                continue
            if merge is not None and mine is Operation.INSERT and not self._meant(log, commit)[0].reads:
                continue  # it goes on, as one that is sent again
            if log.spec.profile is Profile.MAXCOMPUTE:
                check(CLASS[theirs] in FOLLOWS[CLASS[mine]], "the outcome table holds", theirs.name, mine.name)
            elif log.spec.profile.is_delta and mine is Operation.UPDATE:
                check(not winner.logical, "no update is lost", log.spec.profile, winner.version, commit.version)
            elif log.spec.profile.is_delta and mine is theirs is Operation.DELETE:
                check(not shared & seen, "two deletes meet in a file", log.spec.profile, winner.version, commit.version)

    def _check_reads(self, log: Log, commit: pb.CommitRecord, winner: pb.CommitRecord) -> None:
        """Who changes data anywhere overlooks no new file in what it read, also where it changes nothing there."""
        meant, table_id = self._meant(log, commit)
        read = meant.reads.get(table_id, set()) if any(meant.paths.values()) else set()
        if log.spec.profile is Profile.DELTA_SERIALIZABLE and winner.logical:
            new = {entry.partition for entry in winner.added if not entry.is_delete_set}
            check(not read & new, "nobody overlooks what it should have read", winner.version, commit.version)

    # -- the end --------------------------------------------------------------------------------------------------

    def check_end(self, state: State) -> None:
        """Acked commits are in the log exactly once, refused ones never; history is as it was."""
        places: dict[str, list[tuple[str, int]]] = {}
        merged: dict[str, list[tuple[str, int]]] = {}
        for table_id, log in self.logs.items():
            raw_id = keys.uuid_bytes(table_id)
            for version in range(0 if log.has_ended else len(log.commits)):
                self._compare(state, raw_id, log, version)
            for commit in log.own:
                here = merged if commit.properties.get(BRANCH) else places
                here.setdefault(commit.txn_id, []).append((table_id, commit.version))
        self._check_merges(merged)
        for txn_id, answer in self.final.items():
            found = sorted(places.get(txn_id, []))
            if answer[0] == "COMMITTED":
                outcomes = answer[1]
                assert isinstance(outcomes, tuple)
                acked = sorted((table_id, version) for table_id, version, applied in outcomes if not applied)
                check(found == acked, "an acked commit is in the log exactly once", txn_id, found, acked)
                times = {self.logs[table_id].commits[version].time_us for table_id, version in found}
                check(times <= {answer[2]}, "the log has the acked time", txn_id, times, answer[2])
            else:
                check(not found, "a refused transaction is not in the log", txn_id, found, answer)
        for txn_id, found in places.items():
            check(len(found) == len({table for table, _ in found}), "nobody commits twice", txn_id, found)
        for log in self.logs.values():
            for read_us, version in log.answered:
                there = max(c.version for c in log.commits if c.time_us <= read_us)
                check(there == version, "an answered time keeps its version", read_us, version, there)

    def _check_merges(self, found: dict[str, list[tuple[str, int]]]) -> None:
        """A merge that was answered is in the logs, all of it at one time."""
        for txn_id, answer in self.merges.items():
            for table_id, version, count in answer.tables:
                if table_id not in self.logs:
                    continue  # refreshed, and nobody has looked at it since
                mine = [at for there, at in found.get(txn_id, []) if there == table_id]
                expected = list(range(version - count + 1, version + 1))
                check(mine == expected, "a merge that was answered is in the log", txn_id, mine, expected)
                times = {self.logs[table_id].commits[at].time_us for at in mine}
                check(times <= {answer.time_us}, "a merge has one time", txn_id, times)
