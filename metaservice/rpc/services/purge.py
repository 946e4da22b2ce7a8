"""The purge and the sweep at the edge: check, ask, convert."""

from __future__ import annotations

from collections.abc import Sequence

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.rpc.convert import wire
from metaservice.rpc.convert.paging import bound_start, bound_token, fitting, page_size, page_start, page_token
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.service.retention.sweeping import SweepPlace
from protos.laketx.v1 import maintenance_pb2 as pb


class PurgeMethods(Servicer):
    """The purge."""

    def ListPurgeable(self, request: pb.ListPurgeableRequest, context: Context) -> pb.ListPurgeableResponse:
        start = page_start(request.page_token)
        if not 0 <= request.page_size <= limits.PAGE_SIZE_MAX:
            raise invalid("PAGE_SIZE_INVALID", asked=request.page_size, most=limits.PAGE_SIZE_MAX)
        size = request.page_size or limits.PAGE_SIZE_MAX
        if request.table_id:
            table_id = wire.table_id(request.table_id)
            listed = self._ask(lambda: self._calls.purge.list_paths(table_id, start, size))
            shown = list(fitting(listed))
            answer = pb.ListPurgeableResponse(paths=shown)
        else:
            after = wire.table_id(start) if start else ""
            shown = listed = self._ask(lambda: self._calls.purge.list_tables(after, size))
            answer = pb.ListPurgeableResponse(table_ids=listed)
        is_last = len(listed) < size and len(shown) == len(listed)
        answer.next_page_token = page_token("" if is_last else shown[-1])
        return answer

    def ConfirmPurged(self, request: pb.ConfirmPurgedRequest, context: Context) -> pb.ConfirmPurgedResponse:
        table_id, paths = wire.table_id(request.table_id), _paths(request.paths, limits.PAGE_SIZE_MAX)
        self._ask(lambda: self._calls.purge.confirm(table_id, paths))
        return pb.ConfirmPurgedResponse()


class SweepMethods(Servicer):
    """The sweep."""

    def ListSweepable(self, request: pb.ListSweepableRequest, context: Context) -> pb.ListSweepableResponse:
        start = _place(bound_start(request.page_token, "ListSweepable"))
        page = self._calls.sweeping.list_folders(start, page_size(request.page_size))
        folders = [pb.SweepableFolder(table_id=table, txn_id=txn) for table, txn in page.folders]
        following = page.following
        text = f"{following.txn_id}:{following.table_id}:{following.unsettled:d}" if following is not None else ""
        return pb.ListSweepableResponse(
            folders=folders,
            next_page_token=bound_token(text.encode(), "ListSweepable"),
            settled_txn_id=page.settled,
        )

    def ConfirmSwept(self, request: pb.ConfirmSweptRequest, context: Context) -> pb.ConfirmSweptResponse:
        settled = wire.txn_id(request.settled_txn_id)
        self._ask(lambda: self._calls.sweeping.confirm(settled))
        return pb.ConfirmSweptResponse()

    def CheckPaths(self, request: pb.CheckPathsRequest, context: Context) -> pb.CheckPathsResponse:
        table_id, paths = wire.table_id(request.table_id), _paths(request.paths, limits.PATHS_PER_CHECK_MAX)
        shown = sum(1 for _ in fitting(paths))
        if shown < len(paths):
            raise invalid(
                "TOO_MANY_PATHS",
                "the paths don't fit into one answer: send fewer at a time",
                count=len(paths),
                most=shown,
            )
        needed, purgeable = self._calls.sweeping.check_paths(table_id, paths)
        return pb.CheckPathsResponse(needed=needed, purgeable=purgeable)


def _paths(paths: Sequence[str], most: int) -> list[str]:
    if len(paths) > most:
        raise invalid("TOO_MANY_PATHS", count=len(paths), most=most)
    for path in paths:
        if not path or len(path) > limits.PATH_CHARS_MAX:
            raise invalid("PATH_INVALID", path=path[:128])
    return list(paths)


def _place(raw: bytes) -> SweepPlace:
    if not raw:
        return SweepPlace()
    txn_id, _, rest = raw.decode(errors="replace").partition(":")
    table_id, _, unsettled = rest.partition(":")
    ids = (wire.UUID7.match(txn_id), wire.CANONICAL_UUID.match(table_id))
    if unsettled not in ("0", "1") or not any(ids):
        raise invalid("PAGE_TOKEN_INVALID")
    return SweepPlace(txn_id, table_id, unsettled == "1")
