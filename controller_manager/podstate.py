"""What controllers of pods ask of a pod. Pure; no controller itself."""

from __future__ import annotations

from podyard.api import meta
from podyard.api.types import Pod


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
