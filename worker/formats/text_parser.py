"""Texts as values in Arrow, typed by a column: what `texts` writes is read as what it was. No Spark here.

    boolean          true, false, 1, 0                       whatever their case
    numbers          7, -1.50, 1e3                           1.0 is an int; a decimal keeps all its digits
    float, double    the nearest; NaN, Infinity, -Infinity
    date             2026-11-01
    timestamp        2026-11-01 10:00:00.25Z, with a zone    a timestamp_ntz has none, and may be a date alone
    binary           X'00FF'

Spaces around values that are no texts don't count. Arrow's casts are quick and take more: each reads only what is known
to be safe for it, and everything else is read here, value by value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.files.arrow_types import ARROW
from worker.formats.rejects import UnfitError, first_refused, shown

WORDS: Final = {kind: word for word, kind in ARROW.items()}
NUMBER: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
NOT_FINITE: Final = r"[+-]?(?:inf|infinity)|nan"
INFINITE: Final = r"(?i)^[+-]?inf"
INTEGER: Final = r"^-?[0-9]{1,18}$"
BINARY: Final = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'")
DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
ZONE: Final = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
CLOCK: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
ANY_DAY: Final = re.compile(r"[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}")
ANY_TIME: Final = re.compile(
    rf"(?P<day>{ANY_DAY.pattern})"
    r"(?:[ T](?P<clock>[0-9]{2}:[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?)?"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3])(?::?(?P<minutes>[0-5][0-9]))?)?"
)
EXACT: Final = Context(prec=76)  # of numbers that have up to 38 digits on each side
YEAR_MAX: Final = 290_000  # of microseconds in 64 bits
BITS: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


def from_texts(texts: Any, kind: pa.DataType, column: str) -> Any:
    """Return the texts as an array of the type; NULL stays NULL. Refuse a text that is no such value."""
    if pa.types.is_string(kind):
        return texts
    trimmed = pc.utf8_trim(texts, " \t")
    try:
        return _typed(trimmed, kind)
    except ValueError:  # Arrow's errors are such, too
        pass

    def check(begin: int, end: int) -> None:
        try:
            _typed(trimmed[begin:end], kind)
        except ValueError as error:
            raise UnfitError("VALUE_INVALID", str(error)) from error

    at = first_refused(len(texts), check)
    try:
        _typed(trimmed[at : at + 1], kind)
    except ValueError as error:
        why = f": {error}" if isinstance(error, _ReasonError) else ""
        message = f"{shown(texts[at].as_py())} is no {word_of(kind)}{why}"
        raise UnfitError("VALUE_INVALID", message, column) from None
    raise AssertionError("a text that was refused among others is refused alone")


def word_of(kind: pa.DataType) -> str:
    """Return the name of a type in a table's schema."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    for fits, word in ((pa.types.is_struct, "struct"), (pa.types.is_map, "map"), (pa.types.is_list, "array")):
        if fits(kind):
            return word
    return WORDS[kind]


class _ReasonError(ValueError):
    """Why a text is no value of its type."""


def _typed(texts: Any, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return _cast_if(texts, "(?i)^(?:true|false|1|0)$", kind)
    if pa.types.is_integer(kind):
        return _cast_or(texts, INTEGER, kind, lambda text: _integer(text, kind))
    if pa.types.is_floating(kind):
        return _floats(texts, kind)
    if pa.types.is_decimal(kind):
        return _cast_or(texts, _decimals_of(kind), kind, lambda text: _decimal(text, kind))
    if pa.types.is_date(kind):
        return _days(texts)
    if pa.types.is_timestamp(kind):
        return _times(texts, kind)
    assert pa.types.is_binary(kind), f"{kind} is no type of single values"
    return pa.array([None if text is None else _bytes(text) for text in texts.to_pylist()], kind)


def _all_match(texts: Any, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py() is not False


def _cast_if(texts: Any, pattern: str, kind: pa.DataType) -> Any:
    if not _all_match(texts, pattern):
        raise ValueError
    return texts.cast(kind)


def _cast_or(texts: Any, pattern: str, kind: pa.DataType, read: Callable[[str], Any]) -> Any:
    """Cast by Arrow if all texts match the pattern, and else read them one by one."""
    if _all_match(texts, pattern):
        return texts.cast(kind)
    return pa.array([None if text is None else read(text) for text in texts.to_pylist()], kind)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _number(text: str) -> Decimal:
    if re.fullmatch(NUMBER, text) is None:
        raise ValueError
    return Decimal(text)


def _integer(text: str, kind: pa.DataType) -> int:
    number = _number(text)
    if not -(1 << BITS[kind]) <= number < 1 << BITS[kind]:
        raise _ReasonError("it is out of range")
    if number != number.to_integral_value():
        raise _ReasonError("it would change")
    return int(number)


def _decimals_of(kind: pa.DataType) -> str:
    """Return the pattern of texts that surely fit: Arrow doesn't notice every overflow."""
    digits = kind.precision - kind.scale
    whole = rf"[0-9]{{1,{digits}}}" if digits else "0"
    return rf"^[+-]?{whole}(?:\.[0-9]{{1,{kind.scale}}})?$" if kind.scale else rf"^[+-]?{whole}$"


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    number = _number(text)
    if number.copy_abs() >= Decimal((0, (1,), kind.precision - kind.scale)):
        raise _ReasonError("it is out of range")
    shifted = number.quantize(Decimal((0, (1,), -kind.scale)), context=EXACT)
    if shifted != number:
        raise _ReasonError("it would change")
    return shifted


def _floats(texts: Any, kind: pa.DataType) -> Any:
    if not _all_match(texts, rf"(?i)^(?:{NUMBER}|{NOT_FINITE})$"):
        raise ValueError
    numbers = texts.cast(kind)
    infinite = pc.and_(pc.is_inf(numbers), pc.invert(pc.match_substring_regex(texts, INFINITE)))
    if pc.any(infinite).as_py():
        raise _ReasonError("it is out of range")
    return numbers


# -- days and times ----------------------------------------------------------------------------------------------------


def _days(texts: Any) -> Any:
    if _all_match(texts, DAY):
        return texts.cast(pa.date32())
    days = [None if text is None else _day(text) for text in texts.to_pylist()]
    return pa.array(days, pa.int32()).cast(pa.date32())


def _day(text: str) -> int:
    """Return the days since 1970, for years beyond 9999, too."""
    if ANY_DAY.fullmatch(text) is None:
        raise ValueError
    return int(np.datetime64(text.removeprefix("+"), "D").astype(np.int64))


def _times(texts: Any, kind: pa.DataType) -> Any:
    if _all_match(texts, CLOCK + ("$" if kind.tz is None else f"{ZONE}$")):
        return texts.cast(kind)
    times = [None if text is None else _time(text, zoned=kind.tz is not None) for text in texts.to_pylist()]
    return pa.array(times, pa.int64()).cast(kind)


def _time(text: str, *, zoned: bool) -> int:
    """Return the microseconds since 1970."""
    matched = ANY_TIME.fullmatch(text)
    if matched is None:
        raise ValueError
    if zoned and matched["zone"] is None:
        raise _ReasonError("it has no time zone, such as Z or +01:00")
    if not zoned and matched["zone"] is not None:
        raise _ReasonError("it takes no time zone")
    if abs(int(matched["day"][:-6])) > YEAR_MAX:
        raise _ReasonError("it is out of range")
    clock = f"{matched['clock'] or '00:00'}:{matched['second'] or '00'}"
    moment = np.datetime64(f"{matched['day'].removeprefix('+')}T{clock}", "us").astype(np.int64)
    fraction = (matched["fraction"] or "").ljust(9, "0")
    if fraction[6:] != "000":
        raise _ReasonError("it has parts of a microsecond")
    offset = 60 * int(matched["hours"] or 0) + int(matched["minutes"] or 0)
    return int(moment) + int(fraction[:6]) - (-1 if matched["sign"] == "-" else 1) * offset * 60_000_000


# -- bytes -------------------------------------------------------------------------------------------------------------


def _bytes(text: str) -> bytes:
    matched = BINARY.fullmatch(text)
    if matched is None:
        raise _ReasonError("bytes are written X'00FF'")
    return bytes.fromhex(matched[1])
