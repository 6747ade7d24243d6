"""NodeName and NodeAffinity (nodeSelector, required and preferred node affinity).

Sources: nodename/node_name.go, nodeaffinity/node_affinity.go, component-helpers nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podyard.api.types import Pod, core_v1
from scheduler.cache import NodeState
from scheduler.framework import Plugin, Refusal, by_maximum

_MISMATCH = "node(s) didn't match Pod's node affinity/selector"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod says about nodes."""

    node_name: str
    selector: Mapping[str, str]
    required: tuple[core_v1.NodeSelectorTerm, ...] | None
    preferred: tuple[core_v1.PreferredSchedulingTerm, ...]


def _prepare(pod: Pod) -> Wanted:
    affinity = pod.spec.affinity.nodeAffinity
    required = None
    if affinity.HasField("requiredDuringSchedulingIgnoredDuringExecution"):
        required = tuple(affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms)
    preferred = tuple(affinity.preferredDuringSchedulingIgnoredDuringExecution)
    return Wanted(pod.spec.nodeName, dict(pod.spec.nodeSelector), required, preferred)


def filter_name(wanted: Wanted, state: NodeState) -> Refusal | None:
    """Refuses every node but the one that the pod names."""
    if wanted.node_name in ("", state.name):
        return None
    return Refusal(("node(s) didn't match the requested node name",), resolvable=False)


def filter_affinity(wanted: Wanted, state: NodeState) -> Refusal | None:
    """Refuses nodes that selector or required affinity do not choose."""
    assert state.node is not None
    labels = state.node.metadata.labels
    if any(labels.get(key) != value for key, value in wanted.selector.items()):
        return Refusal((_MISMATCH,), resolvable=False)
    if wanted.required is not None and not any(term_matches(term, state) for term in wanted.required):
        return Refusal((_MISMATCH,), resolvable=False)
    return None


def score_affinity(wanted: Wanted, state: NodeState) -> int:
    """The sum of the weights of the preferred terms that match."""
    return sum(
        entry.weight for entry in wanted.preferred if entry.weight and term_matches(entry.preference, state)
    )


def term_matches(term: core_v1.NodeSelectorTerm, state: NodeState) -> bool:
    """All expressions must hold; a term without any matches nothing."""
    if not term.matchExpressions and not term.matchFields:
        return False
    assert state.node is not None
    labels = state.node.metadata.labels
    fields = {"metadata.name": state.name}
    return all(_holds(expression, labels) for expression in term.matchExpressions) and all(
        _holds(expression, fields) for expression in term.matchFields
    )


def _holds(expression: core_v1.NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    present, value = expression.key in labels, labels.get(expression.key, "")
    match expression.operator:
        case "In":
            return present and value in expression.values
        case "NotIn":
            return not present or value not in expression.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            return present and _compared(expression.operator, value, expression.values)
    return False


def _compared(operator: str, value: str, limits: Sequence[str]) -> bool:
    try:
        number, limit = int(value), int(limits[0])
    except (ValueError, IndexError):
        return False
    return number > limit if operator == "Gt" else number < limit


NAME = Plugin("NodeName", prepare=_prepare, filter=filter_name, events=frozenset())
AFFINITY = Plugin(
    "NodeAffinity",
    prepare=_prepare,
    filter=filter_affinity,
    score=score_affinity,
    normalize=by_maximum,
    weight=2,
)
