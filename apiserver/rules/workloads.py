"""Workloads before they are stored: status apart from spec, generation counted.

Counterpart: kubernetes pkg/registry/apps/*/strategy.go.
"""

from __future__ import annotations

from typing import Any

from apiserver.rules import metadata
from podyard.api import codec

# Upstream keeps the number of a DaemonSet's template in its internal form, and here for clients.
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


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


def prepare_daemon_set(obj: Any) -> None:
    """As `prepare_create`; the template's own number begins at 1, or where the client says."""
    prepare_create(obj)
    obj.metadata.annotations[TEMPLATE_GENERATION] = str(max(_template_generation(obj), 1))


def prepare_daemon_set_update(new: Any, old: Any) -> None:
    """As `prepare_update`; a changed template gets the next number."""
    prepare_update(new, old)
    number = _template_generation(old)
    if not codec.same(new.spec.template, old.spec.template):
        number += 1
    new.metadata.annotations[TEMPLATE_GENERATION] = str(number)


def _template_generation(obj: Any) -> int:
    try:
        return int(obj.metadata.annotations.get(TEMPLATE_GENERATION, "0"))
    except ValueError:
        return 0
