"""A Deployment's status: counts, Available, Progressing and its deadline. Pure; no controller itself.

Source: upstream's deployment sync.go (calculateStatus) and progress.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller_manager.rollout import ReplicaSet, max_unavailable
from podyard.api import codec, meta
from podyard.api.quoting import go_quote
from podyard.api.types import apps_v1, copy_of

Deployment = apps_v1.Deployment
CREATE_ERROR = "ReplicaSetCreateError"
UPDATED = "ReplicaSetUpdated"
# Upstream's way to say "no deadline".
NO_DEADLINE_S = 2**31 - 1


def deployment_status(
    deployment: Deployment,
    sets: Sequence[ReplicaSet],
    new: ReplicaSet | None,
    now_s: float,
    *,
    created: bool = False,
) -> apps_v1.DeploymentStatus:
    """The status that a deployment should have.

    Args:
        created: the new set is being made just now.
    """
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
    if created and _has_deadline(deployment):
        text = f"Created new replica set {go_quote(new.metadata.name if new is not None else '')}"
        _set(status, "Progressing", "True", "NewReplicaSetCreated", text, now_s=now_s)
    else:
        _set_progressing(deployment, status, new, now_s)
    return status


def refused(deployment: Deployment, text: str, now_s: float) -> Deployment | None:
    """The deployment whose status says that its new set can't be made; None when it need not be written."""
    if not _has_deadline(deployment):
        return None
    changed = copy_of(deployment)
    _set(changed.status, "Progressing", "False", CREATE_ERROR, text, now_s=now_s)
    return None if codec.same(changed, deployment) else changed


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
    was_complete = present is not None and present.reason == "NewReplicaSetAvailable"
    if was_complete and status.replicas == status.updatedReplicas:
        return  # scaling is no rollout
    subject = f"Deployment {go_quote(deployment.metadata.name)}"
    if new is not None:
        subject = f"ReplicaSet {go_quote(new.metadata.name)}"
    wanted = deployment.spec.replicas
    whole = status.replicas == status.updatedReplicas == status.availableReplicas == wanted
    if whole and new is not None:
        text = f"{subject} has successfully progressed."
        _set(status, "Progressing", "True", "NewReplicaSetAvailable", text, now_s=now_s)
    elif _advanced(deployment.status, status):
        _set(status, "Progressing", "True", UPDATED, f"{subject} is progressing.", now_s=now_s)
    elif present is None and new is not None:
        text = f"Found new replica set {go_quote(new.metadata.name)}"
        _set(status, "Progressing", "True", "FoundNewReplicaSet", text, now_s=now_s)
    elif present is not None and not was_complete and _overdue(deployment, present, now_s):
        text = f"{subject} has timed out progressing."
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


def _set(status: Any, kind: str, value: str, reason: str, message: str, *, now_s: float) -> None:
    """Sets a condition; one of the same status and reason stands, but progress is new each time."""
    found = meta.condition(status.conditions, kind)
    if found is None:
        found = status.conditions.add(type=kind)
    if (found.status, found.reason) == (value, reason) and reason != UPDATED:
        return
    if found.status != value:
        found.lastTransitionTime.seconds = int(now_s)
    found.status, found.reason, found.message = value, reason, message
    found.lastUpdateTime.seconds = int(now_s)


def _drop(status: Any, kind: str) -> None:
    kept = [condition for condition in status.conditions if condition.type != kind]
    del status.conditions[:]
    status.conditions.extend(kept)
