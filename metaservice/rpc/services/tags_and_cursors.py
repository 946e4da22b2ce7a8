"""Tags and cursors at the edge: check, ask the decider, convert."""

from __future__ import annotations

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.retention.marks import Cursor, CursorMove, Tag
from metaservice.rpc.convert import answers, wire
from metaservice.rpc.convert.paging import bound_start, bound_token, fitting, page_size
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.service.retention.marks import MarkRequest
from protos.laketx.v1 import read_pb2 as pb


class MarkMethods(Servicer):
    """Tags and cursors."""

    def CreateTag(self, request: pb.CreateTagRequest, context: Context) -> pb.CreateTagResponse:
        mark = mark_request(request, comment=wire.text(request.comment, "comment"))
        return pb.CreateTagResponse(
            tag=tag_answer(self._ask(lambda: self._calls.marks.create_tag(mark, move=request.move)))
        )

    def ListTags(self, request: pb.ListTagsRequest, context: Context) -> pb.ListTagsResponse:
        table_id, size = _table(request.table_id), page_size(request.page_size)
        after = _place(bound_start(request.page_token, "ListTags", table_id))
        listed = self._ask(lambda: self._calls.marks.list_tags(table_id, after, size))
        shown = list(fitting(map(tag_answer, listed)))
        is_last = len(listed) < size and len(shown) == len(listed)
        place = b"" if is_last else _place_text(listed[len(shown) - 1])
        return pb.ListTagsResponse(tags=shown, next_page_token=bound_token(place, "ListTags", table_id))

    def DropTag(self, request: pb.DropTagRequest, context: Context) -> pb.DropTagResponse:
        table_id, name = wire.table_id(request.table_id), wire.mark_name(request.name)
        return pb.DropTagResponse(dropped=self._ask(lambda: self._calls.marks.drop_tag(table_id, name)))

    def CreateCursor(self, request: pb.CreateCursorRequest, context: Context) -> pb.CreateCursorResponse:
        keep_ms = request.keep_ms
        if keep_ms and not limits.CURSOR_KEEP_MS_MIN <= keep_ms <= limits.CURSOR_KEEP_MS_MAX:
            raise invalid("COUNT_OUT_OF_RANGE", what="keep_ms", value=keep_ms)
        mark = mark_request(request, keep_ms=keep_ms)
        cursor, created = self._ask(lambda: self._calls.marks.create_cursor(mark, must_exist=request.must_exist))
        return pb.CreateCursorResponse(cursor=self._cursor(cursor), created=created)

    def AdvanceCursor(self, request: pb.AdvanceCursorRequest, context: Context) -> pb.AdvanceCursorResponse:
        request_id = request.request_id
        if not wire.CANONICAL_UUID.match(request_id):
            raise invalid("REQUEST_ID_INVALID", "the id is not a UUID in lower case", request_id=request_id[:64])
        table_id, name = wire.table_id(request.table_id), wire.mark_name(request.name)
        expected = wire.version(request.expected_version, "expected_version")
        move = CursorMove(table_id, name, expected, wire.version(request.version), request_id)
        return pb.AdvanceCursorResponse(cursor=self._cursor(self._ask(lambda: self._calls.marks.advance(move))))

    def ListCursors(self, request: pb.ListCursorsRequest, context: Context) -> pb.ListCursorsResponse:
        table_id, size = _table(request.table_id), page_size(request.page_size)
        after = _place(bound_start(request.page_token, "ListCursors", table_id))
        listed = self._ask(lambda: self._calls.marks.list_cursors(table_id, after, size))
        shown = list(fitting(cursor_answer(cursor, left_ms) for cursor, left_ms in listed))
        is_last = len(listed) < size and len(shown) == len(listed)
        place = b"" if is_last else _place_text(listed[len(shown) - 1][0])
        return pb.ListCursorsResponse(cursors=shown, next_page_token=bound_token(place, "ListCursors", table_id))

    def DropCursor(self, request: pb.DropCursorRequest, context: Context) -> pb.DropCursorResponse:
        table_id, name = wire.table_id(request.table_id), wire.mark_name(request.name)
        return pb.DropCursorResponse(dropped=self._ask(lambda: self._calls.marks.drop_cursor(table_id, name)))

    def _cursor(self, cursor: Cursor) -> pb.Cursor:
        return cursor_answer(cursor, self._calls.marks.left_ms(cursor))


def mark_request(
    message: pb.CreateTagRequest | pb.CreateCursorRequest, *, comment: str = "", keep_ms: int = 0
) -> MarkRequest:
    version = wire.version(message.version) if message.HasField("version") else None
    who = wire.principal(message.principal)
    return MarkRequest(wire.table_id(message.table_id), wire.mark_name(message.name), version, who, comment, keep_ms)


def tag_answer(tag: Tag) -> pb.Tag:
    return pb.Tag(
        table_id=tag.table_id,
        name=tag.name,
        version=tag.version,
        comment=tag.comment,
        principal=answers.principal(tag.principal),
        create_time_us=tag.create_us,
    )


def cursor_answer(cursor: Cursor, left_ms: int) -> pb.Cursor:
    return pb.Cursor(
        table_id=cursor.table_id,
        name=cursor.name,
        version=cursor.version,
        keep_ms=cursor.keep_ms,
        principal=answers.principal(cursor.principal),
        create_time_us=cursor.create_us,
        used_time_us=cursor.used_us,
        expired=left_ms == 0,
        left_ms=left_ms,
    )


def _table(text: str) -> str:
    return wire.table_id(text) if text else ""


def _place_text(mark: Tag | Cursor) -> bytes:
    return f"{mark.table_id}:{mark.name}".encode()


def _place(raw: bytes) -> tuple[str, str]:
    """The last item of the page."""
    table_id, colon, name = raw.decode(errors="replace").partition(":")
    if raw and not (colon and wire.CANONICAL_UUID.match(table_id) and wire.MARK_NAME.match(name)):
        raise invalid("PAGE_TOKEN_INVALID")
    return table_id, name
