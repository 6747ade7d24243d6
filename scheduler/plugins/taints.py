"""TaintToleration and NodeUnschedulable.

Sources: tainttoleration/taint_toleration.go, nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podyard.api.tolerations import tolerates
from podyard.api.types import Pod, Taint, Toleration
from scheduler.cache import NodeState
from scheduler.framework import Plugin, Refusal, by_maximum_reversed

_HARD = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class Tolerated:
    """A pod's tolerations; `preferring` are those that count for PreferNoSchedule."""

    all: tuple[Toleration, ...]
    preferring: tuple[Toleration, ...]


def _prepare(pod: Pod) -> Tolerated:
    tolerations = tuple(pod.spec.tolerations)
    return Tolerated(tolerations, tuple(t for t in tolerations if t.effect in ("", "PreferNoSchedule")))


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def filter_taints(tolerated: Tolerated, state: NodeState) -> Refusal | None:
    """Refuses a node with a NoSchedule or NoExecute taint that is not tolerated."""
    for taint in state.taints:
        if taint.effect in _HARD and not _tolerated(taint, tolerated.all):
            return Refusal(("node(s) had untolerated taint(s)",), resolvable=False)
    return None


def count_preferring(tolerated: Tolerated, state: NodeState) -> int:
    """How many PreferNoSchedule taints are not tolerated."""
    return sum(
        1
        for taint in state.taints
        if taint.effect == "PreferNoSchedule" and not _tolerated(taint, tolerated.preferring)
    )


def filter_unschedulable(tolerated: Tolerated, state: NodeState) -> Refusal | None:
    """Refuses a cordoned node, unless the pod tolerates that."""
    assert state.node is not None
    if not state.node.spec.unschedulable or _tolerated(_UNSCHEDULABLE, tolerated.all):
        return None
    return Refusal(("node(s) were unschedulable",), resolvable=False)


TAINTS = Plugin(
    "TaintToleration",
    prepare=_prepare,
    filter=filter_taints,
    score=count_preferring,
    normalize=by_maximum_reversed,
    weight=3,
)
UNSCHEDULABLE = Plugin("NodeUnschedulable", prepare=_prepare, filter=filter_unschedulable)
