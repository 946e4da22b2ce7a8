"""What SlateDB asked of the bucket, as it counts itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from slatedb import uniffi as slatedb

_COUNT: Final = "slatedb.object_store.request_count"
_ERRORS: Final = "slatedb.object_store.error_count"
_SECONDS: Final = "slatedb.object_store.request_duration_seconds"
_PUT: Final = "put"


class SlateRequests:
    """Any thread may ask."""

    def __init__(self) -> None:
        self.recorder = slatedb.DefaultMetricsRecorder()

    def counts(self) -> Mapping[str, int]:
        """By kind of request."""
        return self._sums(_COUNT)

    def errors(self) -> Mapping[str, int]:
        """Those that failed, by kind; SlateDB repeats each."""
        return self._sums(_ERRORS)

    def put_seconds(self) -> tuple[Sequence[float], Sequence[int], float]:
        """Return the bounds of PUTs' times, the counts within each bound and above all, and the sum of the times."""
        bounds: Sequence[float] = ()
        counts: list[int] = []
        total = 0.0
        for metric in self.recorder.metrics_by_name(_SECONDS):
            if _kind(metric) == _PUT:
                value = metric.value[0]
                bounds = value.boundaries
                counts = [
                    count + other
                    for count, other in zip(counts or [0] * len(value.bucket_counts), value.bucket_counts, strict=True)
                ]
                total += value.sum
        return bounds, counts, total

    def _sums(self, name: str) -> Mapping[str, int]:
        sums: Counter[str] = Counter()
        for metric in self.recorder.metrics_by_name(name):
            sums[_kind(metric)] += metric.value[0]
        return sums


def _kind(metric: slatedb.Metric) -> str:
    return str(next(label.value for label in metric.labels if label.key == "api"))
