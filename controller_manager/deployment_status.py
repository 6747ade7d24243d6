"""A Deployment's status: counts, Available, Progressing and its deadline. Pure; no controller itself.

Source: upstream's deployment sync.go (calculateStatus) and progress.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller_manager.rollout import ReplicaSet, max_unavailable
from podyard.api import meta
from podyard.api.types import apps_v1

Deployment = apps_v1.Deployment
# Upstream's way to say "no deadline".
NO_DEADLINE_S = 2**31 - 1


def deployment_status(
    deployment: Deployment, sets: Sequence[ReplicaSet], new: ReplicaSet | None, now_s: float
) -> apps_v1.DeploymentStatus:
    """The status that a deployment should have."""
    status = apps_v1.DeploymentStatus()
    status.observedGeneration = deployment.metadata.generation
    status.replicas = sum(entry.status.replicas for entry in sets)
    status.updatedReplicas = new.status.replicas if new is not None else 0
    status.readyReplicas = sum(entry.status.readyReplicas for entry in sets)
    status.availableReplicas = sum(entry.status.availableReplicas for entry in sets)
    total = sum(entry.spec.replicas for entry in sets)
    status.unavailableReplicas = max(total - status.availableReplicas, 0)
    status.terminatingReplicas = sum(entry.status.terminatingReplicas for entry in sets)
    if deployment.status.HasField("collisionCount"):
        status.collisionCount = deployment.status.collisionCount
    status.conditions.extend(deployment.status.conditions)
    _set_available(deployment, status, now_s)
    _set_progressing(deployment, status, new, now_s)
    return status


def _set_available(deployment: Deployment, status: apps_v1.DeploymentStatus, now_s: float) -> None:
    enough = status.availableReplicas >= deployment.spec.replicas - max_unavailable(deployment)
    if enough:
        values = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        values = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    _set(status, "Available", *values, now_s=now_s)


def _set_progressing(
    deployment: Deployment, status: apps_v1.DeploymentStatus, new: ReplicaSet | None, now_s: float
) -> None:
    present = meta.condition(deployment.status.conditions, "Progressing")
    name = new.metadata.name if new is not None else ""
    if deployment.spec.paused:
        if present is None or present.reason != "DeploymentPaused":
            _set(status, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now_s=now_s)
        return
    if present is not None and present.reason == "DeploymentPaused":
        _set(status, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now_s=now_s)
        return
    if not _has_deadline(deployment):
        _drop(status, "Progressing")
        return
    whole = status.replicas == status.updatedReplicas == deployment.spec.replicas
    was_complete = present is not None and present.reason == "NewReplicaSetAvailable"
    complete = whole and status.availableReplicas == deployment.spec.replicas and new is not None
    if complete:
        text = f'ReplicaSet "{name}" has successfully progressed.'
        _set(status, "Progressing", "True", "NewReplicaSetAvailable", text, now_s=now_s)
    elif _advanced(deployment.status, status) or present is None:
        fresh = present is None and new is None
        reason = "NewReplicaSetCreated" if fresh else "ReplicaSetUpdated"
        text = f'Created new replica set "{name}"' if fresh else f'ReplicaSet "{name}" is progressing.'
        if was_complete or present is None or present.status == "False":
            _set(status, "Progressing", "True", reason, text, now_s=now_s, moved=True)
        else:
            _set(status, "Progressing", "True", reason, text, now_s=now_s)
    elif not was_complete and present is not None and _overdue(deployment, present, now_s):
        text = f'ReplicaSet "{name}" has timed out progressing.'
        _set(status, "Progressing", "False", "ProgressDeadlineExceeded", text, now_s=now_s)


def _advanced(old: Any, new: Any) -> bool:
    """Whether a rollout came further: more new pods, fewer old, more ready or available."""
    old_pods, new_pods = old.replicas - old.updatedReplicas, new.replicas - new.updatedReplicas
    return bool(
        new.updatedReplicas > old.updatedReplicas
        or new_pods < old_pods
        or new.readyReplicas > old.readyReplicas
        or new.availableReplicas > old.availableReplicas
    )


def _has_deadline(deployment: Deployment) -> bool:
    spec = deployment.spec
    return not spec.HasField("progressDeadlineSeconds") or spec.progressDeadlineSeconds != NO_DEADLINE_S


def _overdue(deployment: Deployment, condition: Any, now_s: float) -> bool:
    return bool(condition.lastUpdateTime.seconds + _deadline(deployment) <= now_s)


def _deadline(deployment: Deployment) -> int:
    spec = deployment.spec
    return spec.progressDeadlineSeconds if spec.HasField("progressDeadlineSeconds") else 600


def deadline_s(deployment: Deployment, status: apps_v1.DeploymentStatus) -> float | None:
    """When the progress deadline must be looked at; None when none runs."""
    condition = meta.condition(status.conditions, "Progressing")
    if condition is None or not _has_deadline(deployment) or deployment.spec.paused:
        return None
    if condition.reason in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return None
    return float(condition.lastUpdateTime.seconds + _deadline(deployment))


def _set(
    status: Any, kind: str, value: str, reason: str, message: str, *, now_s: float, moved: bool = False
) -> None:
    """Sets a condition; progress refreshes its update time even when the texts stay."""
    found = meta.condition(status.conditions, kind)
    if found is None:
        found = status.conditions.add(type=kind)
    same = (found.status, found.reason) == (value, reason)
    if same and found.message == message and not (kind == "Progressing" and reason == "ReplicaSetUpdated"):
        return
    if found.status != value or moved:
        found.lastTransitionTime.seconds = int(now_s)
    found.status, found.reason, found.message = value, reason, message
    found.lastUpdateTime.seconds = int(now_s)


def _drop(status: Any, kind: str) -> None:
    kept = [condition for condition in status.conditions if condition.type != kind]
    del status.conditions[:]
    status.conditions.extend(kept)
