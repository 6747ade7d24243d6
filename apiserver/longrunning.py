"""How many watches are open, by what they follow: `apiserver_longrunning_requests`.

Source: the metric's name and labels in apiserver/pkg/endpoints/metrics. A watch counts wherever it came in,
by REST or gRPC, and until its reader has let go of it: what stays when no client is left is a leak.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from podyard.api.resources import Resource
from podyard.base import metrics

_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_REQUESTS = metrics.gauge(
    "apiserver_longrunning_requests",
    "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope "
    "and component. Not all requests are tracked this way.",
    _LABELS,
)


@contextmanager
def watching(row: Resource | None, scope: str) -> Iterator[None]:
    """Counts a watch while the block runs.

    Args:
        row: what is watched; None for several kinds at once.
        scope: cluster, namespace or resource.
    """
    group, version, resource = (row.group, row.version, row.plural) if row else ("", "", "")
    gauge = _REQUESTS.labels("WATCH", group, version, resource, "", scope, "apiserver")
    gauge.inc()
    try:
        yield
    finally:
        gauge.dec()


def scope_of(namespace: str, name: str) -> str:
    """Upstream's word for how much a watch asks for. Source: metrics.CleanScope."""
    if name:
        return "resource"
    return "namespace" if namespace else "cluster"
