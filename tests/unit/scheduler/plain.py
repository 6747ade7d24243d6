"""The rules about other pods as upstream documents them: recounted from all pods, node by node.

Slow and plain on purpose: what the scheduler answers from its indexes must equal this.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from podyard.api import selectors
from podyard.api.types import Node, Pod
from tests.unit.scheduler.builders import HOSTNAME

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
UNEVEN = "node(s) didn't match pod topology spread constraints"
UNLABELLED = f"{UNEVEN} (missing required label)"


@dataclass
class World:
    """Everything there is; pods with a node that exists."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    namespaces: dict[str, dict[str, str]]

    def node_of(self, pod: Pod) -> Node:
        return next(node for node in self.nodes if node.metadata.name == pod.spec.nodeName)


def selected(message, has: bool, labels) -> bool:
    return selectors.from_message(message if has else None).matches(labels)


def speaks_of(term, holder: Pod, pod: Pod, world: World) -> bool:
    """Whether a term of `holder` speaks of `pod`."""
    names = set(term.namespaces)
    if not names and not term.HasField("namespaceSelector"):
        names = {holder.metadata.namespace}
    where = pod.metadata.namespace
    inside = where in names or selected(
        term.namespaceSelector, term.HasField("namespaceSelector"), world.namespaces.get(where, {})
    )
    return inside and selected(term.labelSelector, term.HasField("labelSelector"), pod.metadata.labels)


def same_place(key: str, one: Node, other: Node) -> bool:
    mine, theirs = one.metadata.labels, other.metadata.labels
    return key in mine and key in theirs and mine[key] == theirs[key]


def required(side):
    return side.requiredDuringSchedulingIgnoredDuringExecution


def preferred(side):
    return side.preferredDuringSchedulingIgnoredDuringExecution


def affinity_refusal(pod: Pod, node: Node, world: World) -> str | None:
    own = required(pod.spec.affinity.podAffinity)
    if any(term.topologyKey not in node.metadata.labels for term in own):
        return AFFINITY
    fellows = [other for other in world.pods if all(speaks_of(term, pod, other, world) for term in own)]
    placed = [
        other
        for other in fellows
        if any(term.topologyKey in world.node_of(other).metadata.labels for term in own)
    ]
    if own and (placed or not all(speaks_of(term, pod, pod, world) for term in own)):
        for term in own:
            if not any(same_place(term.topologyKey, node, world.node_of(other)) for other in placed):
                return AFFINITY
    for term in required(pod.spec.affinity.podAntiAffinity):
        for other in world.pods:
            if speaks_of(term, pod, other, world) and same_place(
                term.topologyKey, node, world.node_of(other)
            ):
                return ANTI
    for other in world.pods:
        for term in required(other.spec.affinity.podAntiAffinity):
            if speaks_of(term, other, pod, world) and same_place(
                term.topologyKey, node, world.node_of(other)
            ):
                return EXISTING
    return None


def affinity_weights(pod: Pod, world: World) -> dict[str, int]:
    """Node -> the sum of what speaks for and against it."""
    totals = {node.metadata.name: 0 for node in world.nodes}

    def count(key: str, weight: int, other: Pod) -> None:
        for node in world.nodes:
            if same_place(key, node, world.node_of(other)):
                totals[node.metadata.name] += weight

    for other in world.pods:
        for sign, side in ((1, "podAffinity"), (-1, "podAntiAffinity")):
            for item in preferred(getattr(pod.spec.affinity, side)):
                if speaks_of(item.podAffinityTerm, pod, other, world):
                    count(item.podAffinityTerm.topologyKey, sign * item.weight, other)
            for item in preferred(getattr(other.spec.affinity, side)):
                if speaks_of(item.podAffinityTerm, other, pod, world):
                    count(item.podAffinityTerm.topologyKey, sign * item.weight, other)
        for term in required(other.spec.affinity.podAffinity):
            if speaks_of(term, other, pod, world):
                count(term.topologyKey, 1, other)
    return totals


def affinity_scores(pod: Pod, world: World) -> dict[str, int]:
    totals = affinity_weights(pod, world)
    lowest, highest = min(totals.values()), max(totals.values())
    if lowest == highest:
        return dict.fromkeys(totals, 0)
    return {name: int(100 * ((total - lowest) / (highest - lowest))) for name, total in totals.items()}


# Topology spread.


def included(constraint, pod: Pod, node: Node) -> bool:
    chosen = all(node.metadata.labels.get(key) == value for key, value in pod.spec.nodeSelector.items())
    if constraint.nodeAffinityPolicy != "Ignore" and not chosen:
        return False
    tainted = any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.spec.taints)
    return not (constraint.nodeTaintsPolicy == "Honor" and tainted and not pod.spec.tolerations)


def counted(constraint, pod: Pod, world: World, node: Node) -> int:
    return sum(
        1
        for other in world.pods
        if other.spec.nodeName == node.metadata.name
        and other.metadata.namespace == pod.metadata.namespace
        and not other.metadata.HasField("deletionTimestamp")
        and not empty(constraint, pod)
        and wanted(constraint, pod, other)
    )


def empty(constraint, pod: Pod) -> bool:
    """Whether the selector asks for nothing: then nobody counts, though it matches everybody."""
    keyed = any(key in pod.metadata.labels for key in constraint.matchLabelKeys)
    return constraint.HasField("labelSelector") and not constraint.labelSelector.ListFields() and not keyed


def wanted(constraint, pod: Pod, other: Pod) -> bool:
    """Whether the selector, with the labels that `matchLabelKeys` name, selects `other`."""
    keys = [key for key in constraint.matchLabelKeys if key in pod.metadata.labels]
    return selected(
        constraint.labelSelector, constraint.HasField("labelSelector"), other.metadata.labels
    ) and all(other.metadata.labels.get(key) == pod.metadata.labels[key] for key in keys)


def domains(constraint, constraints, pod: Pod, world: World) -> Counter[str]:
    """Value -> pods that count, of the nodes that count."""
    found: Counter[str] = Counter()
    for node in world.nodes:
        if any(other.topologyKey not in node.metadata.labels for other in constraints):
            continue
        if included(constraint, pod, node):
            found[node.metadata.labels[constraint.topologyKey]] += counted(constraint, pod, world, node)
    return found


def spread_refusal(pod: Pod, node: Node, world: World) -> str | None:
    hard = [c for c in pod.spec.topologySpreadConstraints if c.whenUnsatisfiable == "DoNotSchedule"]
    for constraint in hard:
        value = node.metadata.labels.get(constraint.topologyKey)
        if value is None:
            return UNLABELLED
        found = domains(constraint, hard, pod, world)
        fewest = min(found.values(), default=0)
        if len(found) < (constraint.minDomains or 1):
            fewest = 0
        itself = int(wanted(constraint, pod, pod))
        if found.get(value, 0) + itself - fewest > constraint.maxSkew:
            return UNEVEN
    return None


def spread_scores(pod: Pod, world: World, nodes: Sequence[Node]) -> dict[str, int]:
    """Scores by the pod's own soft constraints, among the nodes that fit."""
    soft = [c for c in pod.spec.topologySpreadConstraints if c.whenUnsatisfiable == "ScheduleAnyway"]
    having = [node for node in nodes if all(c.topologyKey in node.metadata.labels for c in soft)]
    raw: dict[str, int] = {}
    for node in having:
        total = 0.0
        for constraint in soft:
            key = constraint.topologyKey
            value = node.metadata.labels[key]
            if key == HOSTNAME:
                size, count = len(having), counted(constraint, pod, world, node)
            else:
                size = len({other.metadata.labels[key] for other in having})
                count = domains(constraint, soft, pod, world).get(value, 0)
            total += count * math.log(size + 2) + constraint.maxSkew - 1
        raw[node.metadata.name] = math.floor(total + 0.5)
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    scores = {}
    for node in nodes:
        name = node.metadata.name
        if name not in raw:
            scores[name] = 0
        elif not highest:
            scores[name] = 100
        else:
            scores[name] = 100 * (highest + lowest - raw[name]) // highest
    return scores
