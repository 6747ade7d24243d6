"""What controllers of pods ask of a pod. Pure; no controller itself."""

from __future__ import annotations

from typing import Any

from podyard.api import meta, selectors
from podyard.api.types import Key, Pod
from podyard.control.view import View


def is_active(pod: Pod) -> bool:
    """Counts towards its owner: neither over nor on its way out."""
    return pod.status.phase not in ("Succeeded", "Failed") and not pod.metadata.HasField("deletionTimestamp")


def is_ready(pod: Pod) -> bool:
    return meta.is_condition_true(pod.status.conditions, "Ready")


def ready_since_s(pod: Pod) -> float | None:
    """When the pod became ready; None while it is not."""
    condition = meta.condition(pod.status.conditions, "Ready")
    if condition is None or condition.status != "True":
        return None
    return float(condition.lastTransitionTime.seconds)


def available_in_s(pod: Pod, min_ready_s: int, now_s: float) -> float | None:
    """How long until the pod counts as available: 0 when it does, None while it is not ready."""
    since_s = ready_since_s(pod)
    if since_s is None:
        return None
    return max(since_s + min_ready_s - now_s, 0.0) if min_ready_s else 0.0


def node_index(pod: Any) -> tuple[str, ...]:
    """Index of pods by their node."""
    return (pod.spec.nodeName,) if pod.spec.nodeName else ()


def owner_reference(owner: Any, api_version: str, kind: str) -> dict[str, Any]:
    """An owner reference of a controller, as JSON."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def keys_selecting(orphan: Any, kind: Any, view: View) -> list[Key]:
    """Objects of a kind that an orphan may belong to: those of its namespace that select it."""
    if meta.controller_of(orphan.metadata) is not None:
        return []
    return [
        Key(owner.metadata.namespace, owner.metadata.name)
        for owner in view.list(kind, orphan.metadata.namespace)
        if selectors.from_message(owner.spec.selector).matches(orphan.metadata.labels)
    ]
