"""Branches and clones at the edge: check, ask the decider, convert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import starmap
from typing import TypeVar

from metaservice.core import limits
from metaservice.core.access import Place
from metaservice.core.errors import MetaError, invalid
from metaservice.core.table.branches import Branch, BranchEvent, branch_of
from metaservice.rpc.auth.authorization import Authorizer, Maker
from metaservice.rpc.auth.caller import namespace_of
from metaservice.rpc.convert import answers, wire
from metaservice.rpc.convert.paging import bound_start, bound_token, fitting, page_size
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer, UseCases
from metaservice.service.branch.branch_replay import Merged
from metaservice.service.branch.branched_names import NAMESPACE, NEW, BranchedName
from metaservice.service.branch.branches import BranchedTable, BranchRequest
from metaservice.service.branch.merging import MergeRequest
from metaservice.service.branch.refreshing import RefreshRequest
from metaservice.service.branch.replay import Replayed
from metaservice.service.decider.views import TableView
from metaservice.shared.table_patterns import ALL
from protos.laketx.v1 import catalog_pb2 as pb

Item = TypeVar("Item")
Result = TypeVar("Result")
LISTING = "branches"
REFRESH = b"refresh "  # so that the id of a merge is no id of a refresh


class BranchMethods(Servicer):
    """Branches, merges and clones."""

    def __init__(self, calls: UseCases, gate: Authorizer) -> None:
        super().__init__(calls)
        self._gate = gate

    def CreateBranch(self, request: pb.CreateBranchRequest, context: Context) -> pb.CreateBranchResponse:
        creation = _creation(request)
        return pb.CreateBranchResponse(branch=_branch(self._ask(lambda: self._calls.branches.create(creation))))

    def CreateBranches(self, request: pb.CreateBranchesRequest, context: Context) -> pb.CreateBranchesResponse:
        _refuse_too_many(request.branches)
        creations = [_outcome(_creation, each) for each in request.branches]
        create = self._calls.branches.create
        made = self._ask(
            lambda: [each if isinstance(each, MetaError) else _outcome(create, each) for each in creations]
        )
        answer = pb.CreateBranchesResponse()
        for creation, each in zip(request.branches, made, strict=True):
            if isinstance(each, MetaError):
                answer.items.add(error=answers.status(each))
            else:  # of a thousand branches the parent's tables would be too long
                answer.items.add(branch=_branch(replace(each, tables=tuple(creation.tables))))
        return answer

    def ListBranches(self, request: pb.ListBranchesRequest, context: Context) -> pb.ListBranchesResponse:
        size = page_size(request.page_size)
        after = _place(bound_start(request.page_token, LISTING))
        branches = self._ask(lambda: self._calls.branches.list_all(after, size))
        shown = list(fitting(map(_branch, branches)))
        is_last = len(branches) < size and len(shown) == len(branches)
        place = b"" if is_last else shown[-1].name.encode()
        return pb.ListBranchesResponse(branches=shown, next_page_token=bound_token(place, LISTING))

    def GetBranch(self, request: pb.GetBranchRequest, context: Context) -> pb.GetBranchResponse:
        size, filters = page_size(request.page_size), ("branch", request.name)
        after = _place(bound_start(request.page_token, *filters))
        branch, tables, names = self._ask(lambda: self._calls.branches.get(request.name))
        later = [table for table in tables if table.place > after]
        shown = list(fitting(map(_table, later[:size])))
        place = later[len(shown) - 1].place if len(shown) < len(later) else ""
        token = bound_token(place.encode(), *filters)
        changed = [] if after else map(_name, names)
        return pb.GetBranchResponse(branch=_branch(branch), tables=shown, next_page_token=token, names=changed)

    def ListBranchEvents(self, request: pb.ListBranchEventsRequest, context: Context) -> pb.ListBranchEventsResponse:
        size, after = page_size(request.page_size), wire.version(request.after, "after")
        events, newest = self._ask(lambda: self._calls.branches.list_events(after, size))
        return pb.ListBranchEventsResponse(events=fitting(starmap(_event, events)), newest=newest)

    def ExtendBranch(self, request: pb.ExtendBranchRequest, context: Context) -> pb.ExtendBranchResponse:
        keep_ms = _keep_ms(request.keep_ms)
        return pb.ExtendBranchResponse(
            branch=_branch(self._ask(lambda: self._calls.branches.extend(request.name, keep_ms)))
        )

    def DropBranch(self, request: pb.DropBranchRequest, context: Context) -> pb.DropBranchResponse:
        return self._ask(lambda: self._drop(request))

    def DropBranches(self, request: pb.DropBranchesRequest, context: Context) -> pb.DropBranchesResponse:
        _refuse_too_many(request.branches)
        dropped = self._ask(lambda: [_outcome(self._drop, each) for each in request.branches])
        answer = pb.DropBranchesResponse()
        for each in dropped:
            if isinstance(each, MetaError):
                answer.items.add(error=answers.status(each))
            else:
                answer.items.add(branch=each)
        return answer

    def _drop(self, request: pb.DropBranchRequest) -> pb.DropBranchResponse:
        """On the decider's thread."""
        dropped, ended = self._calls.branches.drop(request.name, wire.principal(request.principal))
        return pb.DropBranchResponse(dropped=dropped, ended_transactions=ended)

    def MergeBranch(self, request: pb.MergeBranchRequest, context: Context) -> pb.MergeBranchResponse:
        merge = MergeRequest(
            wire.txn_id(request.txn_id),
            request.name,
            wire.principal(request.principal),
            _merge_digest(request),
            request.keep,
            request.validate_only,
            frozenset(map(wire.table_id, request.checked_table_ids)),
        )
        maker, owning = self._gate.maker(context), list[Callable[[Place], object]]()
        return _merged(self._ask(lambda: self._merge(merge, maker, owning)))

    def _merge(self, request: MergeRequest, maker: Maker, owning: list[Callable[[Place], object]]) -> Merged:
        """Whoever merges is the admin of the namespaces that the lake gets. On the decider's thread, in each turn.

        `owning`: what grants that. It is asked for until the merge is decided: what refuses it refuses the merge.
        """
        state = self._calls.decider.state
        branch = state.branches.find(request.name)
        if request.turns.held is None:
            makes = branch is not None and not (branch.parent or request.validate_only)
            owning[:] = [maker.owning("")] if branch and makes and state.named_spaces.own(branch) else []
        merged = self._calls.merging.merge(request)
        made = [named for named in merged.named if named.kind == NAMESPACE and named.change == NEW]
        for own in owning if merged.is_done else ():
            for named in made:
                own(Place(namespace=named.name))
        return merged

    def RefreshBranch(self, request: pb.RefreshBranchRequest, context: Context) -> pb.RefreshBranchResponse:
        refresh = RefreshRequest(
            wire.txn_id(request.txn_id),
            request.name,
            wire.principal(request.principal),
            REFRESH + wire.digest(request),
            request.validate_only,
        )
        merged = _merged(self._ask(lambda: self._calls.refreshing.refresh(refresh)))
        return pb.RefreshBranchResponse(
            refreshed=merged.merged,
            tables=merged.tables,
            commit_time_us=merged.commit_time_us,
            left_out=merged.left_out,
            names=merged.names,
        )

    def CloneTable(self, request: pb.CloneTableRequest, context: Context) -> pb.CloneTableResponse:
        clone_id, table_id = wire.table_id(request.request_id), wire.table_id(request.table_id)
        version = wire.version(request.version) if request.HasField("version") else None
        name, maker = wire.table_name(request.name), self._gate.maker(context)

        def clone() -> TableView:
            own = maker.owning(namespace_of(name))
            is_new = clone_id not in self._calls.decider.state.tables
            made = self._calls.branches.clone(clone_id, table_id, version, name)
            if is_new:
                own(Place(table_id=clone_id))
            return made

        return pb.CloneTableResponse(table=answers.table(self._ask(clone)))


def _creation(request: pb.CreateBranchRequest) -> BranchRequest:
    return BranchRequest(
        wire.table_id(request.request_id),
        request.name,
        request.parent,
        _keep_ms(request.keep_ms) if request.keep_ms else 0,
        wire.text(request.comment, "comment"),
        wire.principal(request.principal),
        wire.digest(request),
        _patterns(request.tables),
    )


def _outcome(run: Callable[[Item], Result], item: Item) -> Result | MetaError:
    """The result of one item of many, or its refusal."""
    try:
        return run(item)
    except MetaError as refusal:
        return refusal


def _refuse_too_many(branches: Sequence[object]) -> None:
    if len(branches) > limits.BRANCHES_PER_BATCH_MAX:
        raise invalid("BATCH_TOO_LARGE", count=len(branches), most=limits.BRANCHES_PER_BATCH_MAX)


def _place(token: bytes) -> str:
    """Where a list goes on; a token that somebody made up may be anything."""
    if not token.isascii():
        raise invalid("PAGE_TOKEN_INVALID")
    return token.decode()


def _patterns(tables: Sequence[str]) -> tuple[str, ...]:
    if len(tables) > limits.BRANCH_TABLES_MAX:
        raise invalid("COUNT_OUT_OF_RANGE", what="tables", value=len(tables))
    for pattern in tables:
        if branch_of(pattern):
            raise invalid("NAME_INVALID", "give the tables' names in the lake, without a branch", name=pattern[:128])
        wire.table_name(f"{pattern.removesuffix(ALL)}{'.t' * pattern.endswith(ALL)}")
    return tuple(tables)


def _keep_ms(given_ms: int) -> int:
    if not limits.CURSOR_KEEP_MS_MIN <= given_ms <= limits.CURSOR_KEEP_MS_MAX:
        raise invalid("COUNT_OUT_OF_RANGE", what="keep_ms", value=given_ms)
    return given_ms


def _branch(branch: Branch) -> pb.Branch:
    return pb.Branch(
        name=branch.name,
        parent=branch.parent,
        time_us=branch.time_us,
        principal=answers.principal(branch.principal),
        comment=branch.comment,
        expire_time_us=branch.expire_us,
        tables=branch.tables,
    )


def _event(number: int, event: BranchEvent) -> pb.BranchEvent:
    return pb.BranchEvent(
        number=number,
        kind=event.kind.value,
        branch=event.branch,
        parent=event.parent,
        time_us=event.time_us,
        principal=answers.principal(event.principal),
        txn_id=event.txn_id,
        kept=event.kept,
        comment=event.comment,
    )


def _table(table: BranchedTable) -> pb.BranchTable:
    return pb.BranchTable(
        name=table.name,
        table_id=table.table_id,
        parent_table_id=table.parent_id,
        base_version=table.base_version,
        head_version=table.head,
        parent_head_version=table.parent_head,
        dropped=table.is_dropped,
    )


def _merged(merge: Merged) -> pb.MergeBranchResponse:
    tables = sorted(merge.tables, key=lambda table: not table.fails)
    shown = list(fitting(map(_merged_table, tables)))
    time_us, left_out = merge.time_us if merge.is_done else 0, len(tables) - len(shown)
    return pb.MergeBranchResponse(
        merged=merge.is_done,
        tables=shown,
        commit_time_us=time_us,
        left_out=left_out,
        names=[
            *map(_name, sorted(merge.named, key=lambda named: named.refusal is None)),
            *(pb.BranchName(kind=name.kind, name=name.name, change=name.change) for name in merge.done),
        ],
    )


def _name(named: BranchedName) -> pb.BranchName:
    reason, message = ("", "") if named.refusal is None else (named.refusal.reason, named.refusal.message)
    return pb.BranchName(kind=named.kind, name=named.name, change=named.change, reason=reason, message=message)


def _merge_digest(request: pb.MergeBranchRequest) -> bytes:
    """A repeat need not know which checks the first one had run: the branch may be gone."""
    repeated = pb.MergeBranchRequest()
    repeated.CopyFrom(request)
    del repeated.checked_table_ids[:]
    return wire.digest(repeated)


def _merged_table(table: Replayed) -> pb.MergedTable:
    shown = pb.MergedTable(
        name=table.name,
        table_id=table.table.meta.table_id,
        commits=table.count,
        version=table.version,
        fast_forward=table.is_forward,
        checks=table.checks,
    )
    if table.conflict is not None:
        shown.conflict.CopyFrom(answers.conflict(table.conflict))
        shown.branch_version = table.branch_version
    if table.refusal is not None:
        _refusal(shown, table.refusal)
        shown.branch_version = table.branch_version
    return shown


def _refusal(shown: pb.MergedTable, refusal: MetaError) -> None:
    shown.reason, shown.message = refusal.reason, refusal.message
