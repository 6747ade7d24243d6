"""What must hold at every moment of a run, whatever fails.

Fed with every change in the order in which it was stored. A violation is an AssertionError, which
ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podyard.api import pod_resources, quantity
from podyard.api.types import Message, Node, Pod
from podyard.client.informer import Informer


class Invariants:
    """A pod is bound once and never moves; a node is never promised more than it has."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}  # pod uid -> node
        self._taken: dict[str, dict[str, dict[str, int]]] = {}  # node -> pod uid -> requests
        self._allocatable: dict[str, dict[str, int]] = {}

    def change(self, type_: str, obj: Message) -> None:
        """Takes note of a change and checks what it touches."""
        if isinstance(obj, Node):
            self._allocatable[obj.metadata.name] = {
                name: quantity.of(amount).nanos for name, amount in obj.status.allocatable.items()
            }
        elif isinstance(obj, Pod):
            self._pod(type_, obj)

    def _pod(self, type_: str, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.nodeName
        bound = self._node_of.get(uid)
        assert bound in (None, node), f"pod {pod.metadata.name} was on {bound} and is on {node!r} now"
        if not node:
            return
        self._node_of[uid] = node
        taken = self._taken.setdefault(node, {})
        if type_ == "DELETED" or pod.status.phase in ("Succeeded", "Failed"):
            taken.pop(uid, None)
            return
        requests = pod_resources.requests(pod.spec)
        taken[uid] = {name: amount.nanos for name, amount in requests.items()}
        self._fits(node, taken)

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
