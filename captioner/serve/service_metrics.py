"""Prometheus metrics of one worker process, or the sum over all of them if there are several."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)


class ServiceMetrics:
    """Counters and histograms. Every app has its own registry, so that tests may create several apps."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()

        def histogram(name: str, text: str, label: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"captioner_{name}", text, [label], buckets=buckets, registry=own)

        self.requests = Counter("captioner_requests_total", "Answered requests.", ["path", "status"], registry=own)
        self.latency = histogram("request_seconds", "Time from the request to its answer.", "path")
        self.queue = Gauge(
            "captioner_queue_depth",
            "Pictures accepted and not yet answered.",
            ["model"],
            registry=own,
            multiprocess_mode="livesum",
        )
        self.wait = histogram("queue_wait_seconds", "Time that a picture waited for its batch.", "model")
        self.batch = histogram("batch_size", "Pictures searched together.", "model", _BATCHES)
        self.captions = Counter("captioner_captions_total", "Captions written.", ["model"], registry=own)
        self.failures = Counter(
            "captioner_failures_total", "Requests and pictures that failed, by reason.", ["reason"], registry=own
        )
        self.rejected = Counter(
            "captioner_rejected_total", "Requests rejected because the queue was full.", registry=own
        )

    def text(self) -> bytes:
        """What Prometheus reads."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        all_workers = CollectorRegistry()
        MultiProcessCollector(all_workers)  # type: ignore[no-untyped-call]
        return generate_latest(all_workers)
