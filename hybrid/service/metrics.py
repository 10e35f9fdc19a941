"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Requests of a service, and the resources of its process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        registry = self.registry
        self._requests = Counter(
            "sparta_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "sparta_request_seconds",
            "Time to the end of the answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request and its time."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class IndexMetrics(Metrics):
    """The metrics of a service with one index, or of one of its indexes: also batches and the open commit."""

    def __init__(self) -> None:
        super().__init__()
        registry = self.registry
        self._batches = Histogram(
            "sparta_batch_queries",
            "Queries that went into the index together.",
            buckets=_SIZES,
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"sparta_{name}", text, registry=registry)
            for name, text in (
                ("queue", "Queries that wait."),
                ("passages", "Passages in the index."),
                ("generation", "The generation that is searched."),
                ("commit", "The commit that is searched."),
            )
        }

    def batch(self, queries: int) -> None:
        """Count a batch of so many queries."""
        self._batches.observe(queries)

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """Let a gauge (queue, passages, generation or commit) take its value from a function."""
        self._gauges[name].set_function(value)
