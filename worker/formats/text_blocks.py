"""A text file in blocks of whole lines or records, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from worker.formats.rejects import UnfitError

BLOCK_BYTES: Final = 4 << 20
RECORD_BYTES_MAX: Final = 256 << 20
BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Text in UTF-8 that begins in a line; the last one may end without a line end."""

    data: bytes
    line: int
    is_last: bool


def text_blocks(file: BinaryIO, whole: Callable[[Block], int]) -> Iterator[Block]:
    """Yield blocks. `whole` returns the end of a block's last complete record; 0 if it has none."""
    rest, line = file.read(BLOCK_BYTES).removeprefix(BOM), 1
    while True:
        more = file.read(BLOCK_BYTES)
        end = len(rest) if not more else whole(Block(rest, line, is_last=False))
        if end:
            block = Block(rest[:end], line, is_last=not more)
            _check_letters(block)
            yield block
            line += block.data.count(b"\n")
        rest = rest[end:] + more
        if not more:
            return
        if len(rest) > RECORD_BYTES_MAX:
            message = f"a record has more than {RECORD_BYTES_MAX >> 20} MB: is a quote not closed?"
            raise UnfitError("LINE_INVALID", message, place=("line", line))


def whole_lines(block: Block) -> int:
    return block.data.rfind(b"\n") + 1


def _check_letters(block: Block) -> None:
    try:
        block.data.decode()
    except UnicodeDecodeError as error:
        line = block.line + block.data.count(b"\n", 0, error.start)
        raise UnfitError("LINE_INVALID", "this is not UTF-8", place=("line", line)) from error
