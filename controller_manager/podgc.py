"""Removes pods that nobody else will: orphans of nodes that are gone, unscheduled ones that end,
and the oldest of too many that have ended.

Source: upstream's pod garbage collector.
"""

from __future__ import annotations

from typing import Any

from podyard.api import errors
from podyard.api.types import Key, Node, Pod
from podyard.control.actions import Action, Actions, Delete
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

PERIOD_S = 20.0
# How long a node must be gone: it may only be late to register.
QUARANTINE_S = 40.0
TERMINATED_THRESHOLD = 12_500


async def gather(client: Any, view: View, key: Key) -> frozenset[str]:
    """Nodes that exist although the view has none: a watch that lags must not cost a node its pods."""
    missing = {pod.spec.nodeName for pod in view.list(Pod)} - {node.metadata.name for node in view.list(Node)}
    confirmed = set()
    for name in sorted(missing - {""}):
        try:
            await client.get(Node, name)
            confirmed.add(name)
        except errors.NotFound:
            pass
    return frozenset(confirmed)


def reconcile(view: View, key: Key) -> Actions:
    """All pods at once, every 20 s. `view.facts`: nodes that exist for sure."""
    pods = view.list(Pod)
    actions: list[Action] = [*_orphaned(view, pods), *_unscheduled(pods), *_terminated(pods)]
    # A pod may be due for two reasons: one deletion is enough.
    unique = {action.uid: action for action in actions if isinstance(action, Delete)}
    return [*unique.values()]


def _orphaned(view: View, pods: list[Pod]) -> list[Delete]:
    found = []
    confirmed = view.facts or frozenset()
    for pod in pods:
        name = pod.spec.nodeName
        if not name or view.get(Node, Key("", name)) is not None or name in confirmed:
            continue
        pod_key = Key(pod.metadata.namespace, pod.metadata.name)
        gone_at_s = view.gone_at_s(Node, Key("", name)) or view.seen_at_s(Pod, pod_key) or view.now_s
        if view.now_s - gone_at_s >= QUARANTINE_S:
            found.append(_delete(pod, f"PodGC: node {name} no longer exists"))
    return found


def _unscheduled(pods: list[Pod]) -> list[Delete]:
    return [
        _delete(pod, "PodGC: unscheduled pod is terminating")
        for pod in pods
        if pod.metadata.HasField("deletionTimestamp") and not pod.spec.nodeName
    ]


def _terminated(pods: list[Pod]) -> list[Delete]:
    ended = [pod for pod in pods if pod.status.phase in ("Succeeded", "Failed")]
    surplus = len(ended) - TERMINATED_THRESHOLD
    if surplus <= 0:
        return []
    ended.sort(key=lambda pod: (pod.metadata.creationTimestamp.seconds, pod.metadata.name))
    return [_delete(pod, "PodGC: too many terminated pods") for pod in ended[:surplus]]


def _delete(pod: Pod, reason: str) -> Delete:
    metadata = pod.metadata
    return Delete(Pod, Key(metadata.namespace, metadata.name), metadata.uid, grace_s=0, reason=reason)


POD_GC = ControllerSpec(
    name="pod-garbage-collector",
    for_=Pod,
    reconcile=reconcile,
    reads=(Node,),
    gather=gather,
    workers=1,
    single=True,
    period_s=PERIOD_S,
)
