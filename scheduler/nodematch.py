"""What a pod asks of nodes: selector, required and preferred node affinity, tolerated taints. Pure.

Sources: component-helpers scheduling/corev1/nodeaffinity, `FindMatchingUntoleratedTaint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from podyard.api.tolerations import tolerates
from podyard.api.types import Pod, Taint, Toleration, core_v1
from scheduler.cache import NodeState

_HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Required:
    """What a node must have; `terms` is None when no affinity is required."""

    selector: Mapping[str, str]
    terms: tuple[core_v1.NodeSelectorTerm, ...] | None

    def chooses(self, state: NodeState) -> bool:
        """Whether a node is one of those that the pod may run on."""
        labels = state.labels
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        return self.terms is None or any(term_matches(term, state) for term in self.terms)


def required_of(pod: Pod) -> Required | None:
    """None when every node will do."""
    terms = None
    spec = pod.spec
    if spec.HasField("affinity") and spec.affinity.HasField("nodeAffinity"):
        affinity = spec.affinity.nodeAffinity
        if affinity.HasField("requiredDuringSchedulingIgnoredDuringExecution"):
            terms = tuple(affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms)
    if terms is None and not spec.nodeSelector:
        return None
    return Required(dict(spec.nodeSelector), terms)


def term_matches(term: core_v1.NodeSelectorTerm, state: NodeState) -> bool:
    """All expressions must hold; a term without any matches nothing."""
    if not term.matchExpressions and not term.matchFields:
        return False
    fields = {"metadata.name": state.name}
    return all(_holds(expression, state.labels) for expression in term.matchExpressions) and all(
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


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def keeps_out(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether a NoSchedule or NoExecute taint is not tolerated."""
    return any(taint.effect in _HARD and not tolerated(taint, tolerations) for taint in taints)
