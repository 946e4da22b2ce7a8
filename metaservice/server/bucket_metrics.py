"""What a scrape is told of a store's requests to its bucket."""

from __future__ import annotations

from collections.abc import Callable

from metaservice.metrics import BUCKET_ERRORS, BUCKET_PUT_SECONDS, BUCKET_REQUESTS, Histogram, Metric, Reading
from metaservice.store.engines.slate_requests import SlateRequests


def bucket_readings(requests: SlateRequests) -> dict[Metric, Callable[[], Reading]]:
    def put_seconds() -> Reading:
        bounds, counts, total = requests.put_seconds()
        histogram = Histogram(bounds)
        histogram.counts, histogram.total = list(counts), total
        return histogram

    return {
        BUCKET_REQUESTS: requests.counts,
        BUCKET_ERRORS: requests.errors,
        BUCKET_PUT_SECONDS: put_seconds,
    }
