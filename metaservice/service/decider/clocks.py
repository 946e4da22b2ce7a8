"""The service's time: wiring passes the real clocks, tests pass their own."""

from __future__ import annotations

from typing import Protocol


class Clocks(Protocol):
    """`now_us` may jump either way; `mono_ms` never goes back."""

    def now_us(self) -> int: ...

    def mono_ms(self) -> int: ...
