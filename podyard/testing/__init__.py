"""Clusters for tests: real ones (`PodyardCluster`, `AsyncPodyardCluster`) and simulated ones (`world`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podyard.testing.cluster import AsyncPodyardCluster, PodyardCluster

__all__ = ["AsyncPodyardCluster", "PodyardCluster"]


def __getattr__(name: str) -> Any:
    # Only when asked for: the simulation and pytest's start need neither the engine nor gRPC.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from podyard.testing import cluster

    return getattr(cluster, name)
