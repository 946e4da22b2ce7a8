"""The sweep at the edge: check, ask, convert."""

from __future__ import annotations

from dataclasses import dataclass

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.rpc import wire
from metaservice.rpc.paging import bound_start, bound_token, fitting, page_size
from metaservice.service.decider import Decider
from metaservice.service.sweeping import Place, Sweeping
from protos.laketx.v1 import maintenance_pb2


@dataclass(frozen=True, slots=True)
class SweepingCalls:
    """The calls, over the use cases."""

    decider: Decider
    sweeping: Sweeping

    def list_sweepable(self, request: maintenance_pb2.ListSweepableRequest) -> maintenance_pb2.ListSweepableResponse:
        start = _place(bound_start(request.page_token, "ListSweepable"))
        page = self.sweeping.list_folders(start, page_size(request.page_size))
        folders = [maintenance_pb2.SweepableFolder(table_id=table, txn_id=txn) for table, txn in page.folders]
        following = page.following
        text = f"{following.txn_id}:{following.table_id}:{following.unsettled:d}" if following is not None else ""
        return maintenance_pb2.ListSweepableResponse(
            folders=folders,
            next_page_token=bound_token(text.encode(), "ListSweepable"),
            settled_txn_id=page.settled,
        )

    def confirm_swept(self, request: maintenance_pb2.ConfirmSweptRequest) -> maintenance_pb2.ConfirmSweptResponse:
        settled = wire.txn_id(request.settled_txn_id)
        self.decider.call(lambda: self.sweeping.confirm(settled))
        return maintenance_pb2.ConfirmSweptResponse()

    def check_paths(self, request: maintenance_pb2.CheckPathsRequest) -> maintenance_pb2.CheckPathsResponse:
        table_id, paths = wire.table_id(request.table_id), list(request.paths)
        if len(paths) > limits.PATHS_PER_CHECK_MAX:
            raise invalid("TOO_MANY_PATHS", count=len(paths), most=limits.PATHS_PER_CHECK_MAX)
        for path in paths:
            if not path or len(path) > limits.PATH_CHARS_MAX:
                raise invalid("PATH_INVALID", path=path[:128])
        shown = sum(1 for _ in fitting(paths))
        if shown < len(paths):
            raise invalid("TOO_MANY_PATHS", "an answer holds fewer of that length", count=len(paths), most=shown)
        needed, purgeable = self.sweeping.check_paths(table_id, paths)
        return maintenance_pb2.CheckPathsResponse(needed=needed, purgeable=purgeable)


def _place(raw: bytes) -> Place:
    if not raw:
        return Place()
    txn_id, _, rest = raw.decode(errors="replace").partition(":")
    table_id, _, unsettled = rest.partition(":")
    known = (wire.UUID7.match(txn_id), wire.CANONICAL_UUID.match(table_id))
    if unsettled not in ("0", "1") or not any(known):
        raise invalid("PAGE_TOKEN_INVALID")
    return Place(txn_id, table_id, unsettled == "1")
