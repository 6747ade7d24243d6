"""Deployments and ReplicaSets before they are stored: status apart from spec, generation counted.

Counterpart: kubernetes pkg/registry/apps/{deployment,replicaset}/strategy.go.
"""

from __future__ import annotations

from typing import Any

from apiserver.rules import metadata


def prepare_create(obj: Any) -> None:
    """A new workload has no status and is its first generation."""
    obj.ClearField("status")
    obj.status.SetInParent()
    metadata.first_generation(obj)


def prepare_update(new: Any, old: Any) -> None:
    """The stored status stays; a changed spec, or a deployment's annotations, is a new generation."""
    new.status.CopyFrom(old.status)
    metadata.count_generation(new, old, lambda obj: obj.spec)


def prepare_deployment_update(new: Any, old: Any) -> None:
    """As `prepare_update`; annotations are carried over to replica sets, so they count too."""
    prepare_update(new, old)
    if new.metadata.generation == old.metadata.generation and dict(new.metadata.annotations) != dict(
        old.metadata.annotations
    ):
        new.metadata.generation += 1


def prepare_status(new: Any, old: Any) -> None:
    """Only the status changes; a deployment's labels stay."""
    new.spec.CopyFrom(old.spec)
    new.metadata.labels.clear()
    new.metadata.labels.update(old.metadata.labels)
