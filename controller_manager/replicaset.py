"""ReplicaSets: as many pods as wanted, adopted, released, created, and deleted by rank.

Source: upstream's replica set controller and controller_utils (ActivePodsWithRanks).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from controller_manager.podstate import (
    available_in_s,
    is_active,
    is_ready,
    keys_selecting,
    owner_reference,
    ready_since_s,
)
from podyard.api import codec, meta, selectors
from podyard.api.types import Key, Pod, apps_v1, copy_of
from podyard.control.actions import Action, Actions, Announced, Create, Delete, Patch, RequeueAfter, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

ReplicaSet = apps_v1.ReplicaSet
# Upstream: the most pods created or deleted by one sync.
BURST = 500
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_RANK = {"Pending": 0, "Unknown": 1, "": 1, "Running": 2}


def reconcile(view: View, key: Key) -> Actions:
    """One step towards the wanted number of pods.

    Returns:
        Patches that adopt or release, then creates or deletes, then at most one status Update,
        and a RequeueAfter while pods are ready but not yet available.
    """
    owner = view.get(ReplicaSet, key)
    if owner is None:
        return []
    own, actions = _claim(view, owner)
    active = [pod for pod in own if is_active(pod)]
    if not owner.metadata.HasField("deletionTimestamp"):
        actions += _scale(owner, own, active)
    status, requeue_s = _status(owner, own, active, view.now_s)
    if status is not None:
        actions.append(Update(status, subresource="status"))
    if requeue_s is not None:
        actions.append(RequeueAfter(requeue_s))
    return actions


def _claim(view: View, owner: ReplicaSet) -> tuple[list[Pod], list[Action]]:
    """The owner's pods; orphans that match are adopted, own ones that do not are released."""
    selector = selectors.from_message(owner.spec.selector)
    own: list[Pod] = []
    actions: list[Action] = []
    for pod in view.list(Pod, owner.metadata.namespace):
        controller = meta.controller_of(pod.metadata)
        matches = selector.matches(pod.metadata.labels)
        if controller is not None and controller.uid == owner.metadata.uid:
            if matches or owner.metadata.HasField("deletionTimestamp"):
                own.append(pod)
            else:
                actions.append(_release(pod, owner))
        elif (
            controller is None
            and matches
            and is_active(pod)
            and not owner.metadata.HasField("deletionTimestamp")
        ):
            actions.append(_adopt(pod, owner))
            own.append(pod)
    return own, actions


def _adopt(pod: Pod, owner: ReplicaSet) -> Patch:
    reference = owner_reference(owner, "apps/v1", "ReplicaSet")
    body = {"metadata": {"uid": pod.metadata.uid, "ownerReferences": [reference]}}
    key = Key(pod.metadata.namespace, pod.metadata.name)
    return Patch(Pod, key, body, patch_type="application/strategic-merge-patch+json", reason="adopt")


def _release(pod: Pod, owner: ReplicaSet) -> Patch:
    gone = {"$patch": "delete", "uid": owner.metadata.uid}
    body = {"metadata": {"uid": pod.metadata.uid, "ownerReferences": [gone]}}
    key = Key(pod.metadata.namespace, pod.metadata.name)
    return Patch(Pod, key, body, patch_type="application/strategic-merge-patch+json", reason="release")


def _scale(owner: ReplicaSet, own: list[Pod], active: list[Pod]) -> list[Action]:
    surplus = len(active) - owner.spec.replicas
    if surplus < 0:
        count = min(-surplus, BURST)
        announced = Announced(
            owner, "SuccessfulCreate", "Created pod: {name}", "FailedCreate", "Error creating: {error}"
        )
        return [Create(_new_pod(owner), announced=announced) for _ in range(count)]
    announced = Announced(
        owner, "SuccessfulDelete", "Deleted pod: {name}", "FailedDelete", "Error deleting: {error}"
    )
    doomed = _ranked(active, own)[: min(surplus, BURST)]
    return [
        Delete(Pod, Key(pod.metadata.namespace, pod.metadata.name), pod.metadata.uid, announced=announced)
        for pod in doomed
    ]


def _new_pod(owner: ReplicaSet) -> Pod:
    template = owner.spec.template
    pod = Pod(
        metadata={
            "generateName": f"{owner.metadata.name}-",
            "namespace": owner.metadata.namespace,
            "labels": dict(template.metadata.labels),
            "annotations": dict(template.metadata.annotations),
            "finalizers": list(template.metadata.finalizers),
            "ownerReferences": [owner_reference(owner, "apps/v1", "ReplicaSet")],
        }
    )
    pod.spec.CopyFrom(template.spec)
    return pod


def _ranked(active: list[Pod], own: list[Pod]) -> list[Pod]:
    """Active pods, the first to go first."""
    together = Counter(pod.spec.nodeName for pod in own if is_active(pod))

    def rank(pod: Pod) -> tuple[Any, ...]:
        since_s = ready_since_s(pod)
        restarts = max((status.restartCount for status in pod.status.containerStatuses), default=0)
        return (
            bool(pod.spec.nodeName),
            _PHASE_RANK.get(pod.status.phase, 1),
            is_ready(pod),
            _deletion_cost(pod),
            -together[pod.spec.nodeName],
            # The later it became ready, the sooner it goes.
            -(since_s or 0.0),
            -restarts,
            -pod.metadata.creationTimestamp.seconds,
            pod.metadata.name,
        )

    return sorted(active, key=rank)


def _deletion_cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(_DELETION_COST, "0"))
    except ValueError:
        return 0


def _status(
    owner: ReplicaSet, own: list[Pod], active: list[Pod], now_s: float
) -> tuple[ReplicaSet | None, float | None]:
    """The changed object when its status must change, and when to look again."""
    labels = dict(owner.spec.template.metadata.labels).items()
    waits = [available_in_s(pod, owner.spec.minReadySeconds, now_s) for pod in active]
    wanted = copy_of(owner)
    status = wanted.status
    status.replicas = len(active)
    status.fullyLabeledReplicas = sum(labels <= dict(pod.metadata.labels).items() for pod in active)
    status.readyReplicas = sum(is_ready(pod) for pod in active)
    status.availableReplicas = sum(wait == 0 for wait in waits)
    status.terminatingReplicas = sum(
        pod.metadata.HasField("deletionTimestamp") and pod.status.phase not in ("Succeeded", "Failed")
        for pod in own
    )
    status.observedGeneration = owner.metadata.generation
    later = [wait for wait in waits if wait]
    changed = not codec.same(wanted.status, owner.status)
    return (wanted if changed else None), (min(later) if later else None)


def _keys_of_pod(old: Any, new: Any, view: View) -> list[Key]:
    """An orphan may be someone's: every set of its namespace that selects it looks."""
    return keys_selecting(new if new is not None else old, ReplicaSet, view)


REPLICASET = ControllerSpec(
    name="replicaset",
    for_=ReplicaSet,
    owns=(Pod,),
    maps={Pod: _keys_of_pod},
    reconcile=reconcile,
    reporter="replicaset-controller",
    workers=8,
)
