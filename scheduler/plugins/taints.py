"""TaintToleration and NodeUnschedulable.

Sources: tainttoleration/taint_toleration.go, nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from podyard.api.types import Taint, Toleration
from scheduler.cache import Cache, NodeState
from scheduler.framework import Plugin, Refusal, by_maximum_reversed
from scheduler.nodematch import keeps_out, tolerated
from scheduler.pods import Subject

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_TAINTED = Refusal(("node(s) had untolerated taint(s)",), resolvable=False)
_CORDONED = Refusal(("node(s) were unschedulable",), resolvable=False)

Tolerations = tuple[Toleration, ...]


def _tolerations(subject: Subject, cache: Cache) -> Tolerations:
    return tuple(subject.pod.spec.tolerations)


def filter_taints(tolerations: Tolerations, state: NodeState) -> Refusal | None:
    """Refuses a node with a NoSchedule or NoExecute taint that is not tolerated."""
    return _TAINTED if state.taints and keeps_out(state.taints, tolerations) else None


def _preferring(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> Tolerations | None:
    if not any(taint.effect == "PreferNoSchedule" for state in nodes for taint in state.taints):
        return None
    return tuple(t for t in subject.pod.spec.tolerations if t.effect in ("", "PreferNoSchedule"))


def count_preferring(tolerations: Tolerations, state: NodeState) -> int:
    """How many PreferNoSchedule taints are not tolerated."""
    return sum(
        1
        for taint in state.taints
        if taint.effect == "PreferNoSchedule" and not tolerated(taint, tolerations)
    )


def _kept_from_cordoned(subject: Subject, cache: Cache) -> bool | None:
    return None if tolerated(_UNSCHEDULABLE, subject.pod.spec.tolerations) else True


def filter_unschedulable(_: bool, state: NodeState) -> Refusal | None:
    """Refuses a cordoned node."""
    return _CORDONED if state.cordoned else None


TAINTS = Plugin(
    "TaintToleration",
    pre_filter=_tolerations,
    filter=filter_taints,
    pre_score=_preferring,
    score=count_preferring,
    normalize=by_maximum_reversed,
    weight=3,
)
UNSCHEDULABLE = Plugin("NodeUnschedulable", pre_filter=_kept_from_cordoned, filter=filter_unschedulable)
