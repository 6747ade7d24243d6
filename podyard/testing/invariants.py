"""What must hold at every moment of a run, whatever fails.

Fed with every change in the order in which it was stored. A violation is an AssertionError, which
ends the run.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from podyard.api import meta, pod_resources, quantity
from podyard.api.types import Message, Node, Pod, apps_v1
from podyard.client.informer import Informer

_FINISHED = ("Succeeded", "Failed")
ReplicaSet = apps_v1.ReplicaSet


class Invariants:
    """Of pods: bound once and never moved; once finished, for ever; an end that began goes on. Of nodes:
    never promised more than they have; pod ranges that are theirs alone. Of ReplicaSets: never more
    pods at once than were ever asked for. Of everything: generations that only rise, and are observed
    only once they are there.
    """

    def __init__(self) -> None:
        self._generation: dict[str, int] = {}  # uid -> the highest seen
        self._pods: dict[str, Pod] = {}  # uid -> its last state
        self._taken: dict[str, dict[str, dict[str, int]]] = {}  # node -> pod uid -> requests
        self._allocatable: dict[str, dict[str, int]] = {}
        self._ranges: dict[str, ipaddress.IPv4Network] = {}  # node uid -> its pod range
        self._asked: dict[str, int] = {}  # ReplicaSet uid -> the most replicas ever asked for
        self._owned: dict[str, set[str]] = {}  # owner's uid -> uids of its live pods

    def change(self, type_: str, obj: Message) -> None:
        """Takes note of a change and checks what it touches."""
        gone = type_ == "DELETED"
        self._generations(obj, gone)
        if isinstance(obj, Node):
            self._node(obj, gone)
        elif isinstance(obj, ReplicaSet):
            uid = obj.metadata.uid
            self._asked[uid] = max(self._asked.get(uid, 0), obj.spec.replicas)
        elif isinstance(obj, Pod):
            self._pod(obj, gone)

    def _generations(self, obj: Any, gone: bool) -> None:
        metadata = obj.metadata
        before, now = self._generation.get(metadata.uid, 0), metadata.generation
        assert before <= now, f"{metadata.name} went from generation {before} back to {now}"
        observed = getattr(getattr(obj, "status", None), "observedGeneration", 0)
        assert observed <= now, f"{metadata.name}: generation {observed} observed, but it is {now}"
        self._generation[metadata.uid] = now
        if gone:
            del self._generation[metadata.uid]

    # Nodes.

    def _node(self, node: Node, gone: bool) -> None:
        metadata = node.metadata
        self._allocatable[metadata.name] = {
            name: quantity.of(amount).nanos for name, amount in node.status.allocatable.items()
        }
        known = self._ranges.pop(metadata.uid, None)
        if gone or not node.spec.podCIDR:
            assert gone or known is None, f"{metadata.name} has lost its pod range {known}"
            return
        own = ipaddress.IPv4Network(node.spec.podCIDR)
        assert known in (None, own), f"{metadata.name} had the pod range {known} and has {own} now"
        for other in self._ranges.values():
            assert not own.overlaps(other), f"{metadata.name} has {own}, another node {other}"
        self._ranges[metadata.uid] = own

    # Pods.

    def _pod(self, pod: Pod, gone: bool) -> None:
        metadata = pod.metadata
        before = self._pods.get(metadata.uid)
        if before is not None:
            _goes_on(before, pod)
        self._pods[metadata.uid] = pod
        if gone:
            del self._pods[metadata.uid]
        over = gone or pod.status.phase in _FINISHED
        self._no_more_than_asked(pod, over)
        if not pod.spec.nodeName:
            return
        taken = self._taken.setdefault(pod.spec.nodeName, {})
        if over:
            taken.pop(metadata.uid, None)
            return
        requests = pod_resources.requests(pod.spec)
        taken[metadata.uid] = {name: amount.nanos for name, amount in requests.items()}
        self._fits(pod.spec.nodeName, taken)

    def _no_more_than_asked(self, pod: Pod, over: bool) -> None:
        owner = meta.controller_of(pod.metadata)
        if owner is None or owner.kind != "ReplicaSet":
            return
        live = self._owned.setdefault(owner.uid, set())
        if over or pod.metadata.HasField("deletionTimestamp"):
            live.discard(pod.metadata.uid)
            return
        live.add(pod.metadata.uid)
        asked = self._asked.get(owner.uid)
        if asked is not None:
            assert len(live) <= asked, f"{owner.name} has {len(live)} pods, was never to have over {asked}"

    def _fits(self, node: str, taken: dict[str, dict[str, int]]) -> None:
        allocatable = self._allocatable.get(node)
        if allocatable is None:
            return  # someone named a node that does not exist
        totals: dict[str, int] = {"pods": len(taken) * quantity.NANOS}
        for requests in taken.values():
            for name, nanos in requests.items():
                totals[name] = totals.get(name, 0) + nanos
        for name, nanos in totals.items():
            allowed = allocatable.get(name, 0)
            assert nanos <= allowed, f"{node} has {allowed} n{name} and has promised {nanos}"


def _goes_on(before: Pod, pod: Pod) -> None:
    """A later state of the same pod."""
    name, bound, node = pod.metadata.name, before.spec.nodeName, pod.spec.nodeName
    assert bound in ("", node), f"pod {name} was on {bound} and is on {node!r} now"
    was, phase = before.status.phase, pod.status.phase
    assert was not in _FINISHED or phase == was, f"pod {name} was {was} and is {phase} now"
    if before.metadata.HasField("deletionTimestamp"):
        assert pod.metadata.HasField("deletionTimestamp"), f"pod {name} was ending and is not any more"
        ends, later = before.metadata.deletionTimestamp.seconds, pod.metadata.deletionTimestamp.seconds
        assert later <= ends, f"the end of pod {name} was put off from {ends} to {later}"


def never_back(informer: Informer[Any]) -> None:
    """Watches an informer: an object's state must never become an older one."""
    informer.on_change(_forward(informer.kind.DESCRIPTOR.name))


def _forward(kind: str) -> Callable[[Any, Any], None]:
    def check(old: Any, new: Any) -> None:
        if old is None or new is None:
            return
        before, after = int(old.metadata.resourceVersion), int(new.metadata.resourceVersion)
        assert before < after, f"{kind} {new.metadata.name} went from {before} back to {after}"

    return check
