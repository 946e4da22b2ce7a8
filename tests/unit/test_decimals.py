"""Decimals of as many digits as a column has, as values of the wire."""

from decimal import Decimal

import pytest

from worker.base.errors import InputError
from worker.base.values import raw_value, wire_value

LONG = Decimal("-9999999999999999999999999999.0000000001")  # 38 digits


def test_a_bound_keeps_all_digits() -> None:
    unscaled = -99999999999999999999999999990000000001
    value, is_cut = raw_value(unscaled.to_bytes(16, "big", signed=True), "decimal(38,10)", is_max=False)
    assert value is not None
    assert (Decimal(value.decimal), is_cut) == (LONG, False)


def test_a_value_keeps_all_digits() -> None:
    assert Decimal(wire_value(LONG, "decimal(38,10)").decimal) == LONG
    with pytest.raises(InputError, match="VALUE_INVALID"):
        wire_value(LONG, "decimal(38,9)")
