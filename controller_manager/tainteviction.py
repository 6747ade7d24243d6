"""Deletes pods whose node has a NoExecute taint that they no longer tolerate.

The deadline is the taint's `timeAdded` plus the toleration, so it survives a restart. Recovery
cancels it: the next reconcile simply finds nothing to do. Source: upstream's taint eviction
controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller_manager.podstate import node_index
from podyard.api import meta, times
from podyard.api.tolerations import tolerates
from podyard.api.types import Key, Node, Pod, Taint
from podyard.control.actions import Actions, Announced, Delete, Emit, Patch, RequeueAfter
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

_NO_EXECUTE = "NoExecute"
REASON = "DeletionByTaintManager"
MESSAGE = "Taint manager: deleting due to NoExecute taint"


class Sightings:
    """What this process remembers: when it first saw taints without a time, and whom it means to evict."""

    def __init__(self) -> None:
        # By node's uid, by taint's key and value.
        self._seen: dict[str, dict[tuple[str, str], float]] = {}
        # Pods with a deadline ahead, by key: their uids.
        self._planned: dict[Key, str] = {}

    def plan(self, key: Key, uid: str) -> None:
        """A pod is to go at a later time."""
        self._planned[key] = uid

    def drop(self, key: Key) -> str:
        """A pod is no longer to go later; answers its uid, empty when it was not to go."""
        return self._planned.pop(key, "")

    def note(self, node: Node, now_s: float) -> None:
        """Remembers new taints, forgets those that are gone."""
        known = self._seen.get(node.metadata.uid, {})
        present = {
            (taint.key, taint.value): known.get((taint.key, taint.value), now_s)
            for taint in node.spec.taints
            if taint.effect == _NO_EXECUTE and not taint.HasField("timeAdded")
        }
        if present:
            self._seen[node.metadata.uid] = present
        else:
            self._seen.pop(node.metadata.uid, None)

    def forget(self, node: Node) -> None:
        self._seen.pop(node.metadata.uid, None)

    def since_s(self, node: Node, taint: Taint, now_s: float) -> float:
        return self._seen.get(node.metadata.uid, {}).get((taint.key, taint.value), now_s)


def reconcile(view: View, key: Key, sightings: Sightings) -> Actions:
    """What is due for one pod.

    Returns:
        The condition and then the Delete when a deadline has passed, one RequeueAfter when it lies
        ahead, an event when it lay ahead and is called off, nothing when every taint is tolerated
        for ever.
    """
    pod = view.get(Pod, key)
    if pod is None or not pod.spec.nodeName or pod.metadata.HasField("deletionTimestamp"):
        sightings.drop(key)
        return []
    node = view.get(Node, Key("", pod.spec.nodeName))
    if node is None:
        return []
    due_s = eviction_due_s(pod, node, lambda taint: sightings.since_s(node, taint, view.now_s))
    if due_s is not None and due_s > view.now_s:
        sightings.plan(key, pod.metadata.uid)
        return [RequeueAfter(due_s - view.now_s)]
    planned = sightings.drop(key)
    if due_s is not None:
        return _evict(pod, key, view.now_s)
    if planned != pod.metadata.uid:
        return []
    text = f"Cancelling deletion of Pod {key.namespace}/{key.name}"
    return [Emit(pod, "Normal", "TaintManagerEviction", text)]


def eviction_due_s(pod: Pod, node: Node, first_seen_s: Callable[[Taint], float]) -> float | None:
    """When a pod must go from its node; None for never.

    Args:
        first_seen_s: when this process first saw a taint that says no time itself.
    """
    due: list[float] = []
    for taint in node.spec.taints:
        if taint.effect != _NO_EXECUTE:
            continue
        matching = [toleration for toleration in pod.spec.tolerations if tolerates(toleration, taint)]
        if not matching:
            return _since_s(taint, first_seen_s)
        bounded = [float(t.tolerationSeconds) for t in matching if t.HasField("tolerationSeconds")]
        if bounded:
            # Several tolerations of one taint: the shortest counts, as upstream.
            due.append(_since_s(taint, first_seen_s) + max(min(bounded), 0.0))
    return min(due, default=None)


def _since_s(taint: Taint, first_seen_s: Callable[[Taint], float]) -> float:
    # Differs from upstream: a taint set by hand has no time; its first sight counts, anew after a restart.
    return float(taint.timeAdded.seconds) if taint.HasField("timeAdded") else first_seen_s(taint)


def _evict(pod: Pod, key: Key, now_s: float) -> Actions:
    text = f"Marking for deletion Pod {key.namespace}/{key.name}"
    announced = Announced(pod, "TaintManagerEviction", text, "FailedEviction", "Error deleting: {error}")
    delete = Delete(Pod, key, pod.metadata.uid, reason=f"evicting {key}", announced=announced)
    if meta.is_condition_true(pod.status.conditions, "DisruptionTarget"):
        return [delete]
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": REASON,
        "message": MESSAGE,
        "lastTransitionTime": times.text(int(now_s)),
        "observedGeneration": pod.metadata.generation,
    }
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    patch = Patch(Pod, key, body, subresource="status", patch_type="application/strategic-merge-patch+json")
    # The condition first: once deleted, nobody may read why. The Delete comes with the next look.
    return [patch, RequeueAfter(0.0)]


def _pods_of_node(old: Any, new: Any, view: View, sightings: Sightings) -> list[Key]:
    """A change of a node's NoExecute taints concerns all its pods."""
    if new is None:
        sightings.forget(old)
    else:
        sightings.note(new, view.now_s)
    if _no_execute(old) == _no_execute(new):
        return []
    name = (new if new is not None else old).metadata.name
    return [Key(pod.metadata.namespace, pod.metadata.name) for pod in view.by_index(Pod, "node", name)]


def _no_execute(node: Any) -> list[tuple[str, str, int]]:
    if node is None:
        return []
    return [(t.key, t.value, t.timeAdded.seconds) for t in node.spec.taints if t.effect == _NO_EXECUTE]


def controller() -> ControllerSpec:
    sightings = Sightings()
    return ControllerSpec(
        name="taint-eviction-controller",
        for_=Pod,
        maps={Node: lambda old, new, view: _pods_of_node(old, new, view, sightings)},
        indexes={Pod: {"node": node_index}},
        reconcile=lambda view, key: reconcile(view, key, sightings),
        reporter="taint-eviction-controller",
        workers=8,
    )
