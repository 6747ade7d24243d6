"""Metrics under upstream's names, one registry a process, served at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_DURATION_BUCKETS_S = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
    return Gauge(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
    """A histogram of durations in seconds."""
    return Histogram(name, text, labels, registry=REGISTRY, buckets=_DURATION_BUCKETS_S)


def exposition() -> bytes:
    """The text that a scraper reads."""
    return generate_latest(REGISTRY)
