"""PodTopologySpread: the pods of a set are spread evenly over the values of a node label.

A pod that says nothing itself is spread, softly, with the other pods of its Services and its owner.

Sources: podtopologyspread/common.go, filtering.go, scoring.go, plugin.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from podyard.api import selectors
from podyard.api.selectors import LabelSelector
from podyard.api.types import core_v1
from scheduler.cache import Cache, NodeState
from scheduler.framework import MAX_SCORE, Event, Plugin, PodChange, Refusal
from scheduler.nodematch import keeps_out, required_of
from scheduler.podindex import Counts
from scheduler.pods import PodFacts, Subject

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"
_UNEVEN = Refusal(("node(s) didn't match pod topology spread constraints",))
_UNLABELLED = Refusal(
    ("node(s) didn't match pod topology spread constraints (missing required label)",), resolvable=False
)
_NOT_SCORED = -1


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint.

    Attributes:
        selector: pods of the pod's namespace that count.
        honor_affinity: only nodes that the pod's selector and affinity choose count.
        honor_taints: only nodes whose taints the pod tolerates count.
    """

    key: str
    max_skew: int
    selector: LabelSelector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


# What is done for pods that say nothing: the selector comes from Services and owners.
DEFAULTS = (Constraint(HOSTNAME, 3, selectors.EVERYTHING), Constraint(ZONE, 5, selectors.EVERYTHING))


def constraints_of(subject: Subject, action: str) -> tuple[Constraint, ...]:
    """The pod's own constraints with this `whenUnsatisfiable`."""
    own = subject.pod.spec.topologySpreadConstraints
    if not own:
        return ()
    raw = tuple(
        item.SerializeToString(deterministic=True) for item in own if item.whenUnsatisfiable == action
    )
    return _parsed(raw, frozenset(subject.facts.labels.items()))


@lru_cache(maxsize=1024)
def _parsed(raw: tuple[bytes, ...], labels: Iterable[tuple[str, str]]) -> tuple[Constraint, ...]:
    return tuple(_constraint(core_v1.TopologySpreadConstraint.FromString(item), dict(labels)) for item in raw)


def _constraint(item: core_v1.TopologySpreadConstraint, labels: Mapping[str, str]) -> Constraint:
    selector = selectors.from_message(item.labelSelector if item.HasField("labelSelector") else None)
    # The server has put these into the selector, of pods that it made itself.
    own = selectors.from_labels({key: labels[key] for key in item.matchLabelKeys if key in labels})
    if own.requirements and not selector.nothing:
        selector = LabelSelector(tuple(dict.fromkeys(own.requirements + selector.requirements)))
    return Constraint(
        item.topologyKey,
        item.maxSkew,
        selector,
        item.minDomains if item.HasField("minDomains") else 1,
        item.nodeAffinityPolicy != "Ignore",
        item.nodeTaintsPolicy == "Honor",
    )


def _counted(constraint: Constraint, facts: PodFacts, cache: Cache) -> Counts:
    """Pods on each node that count; an empty selector counts none."""
    if constraint.selector.empty:
        return {}
    return cache.index.staying(facts.namespace, constraint.selector)


class _Inclusion:
    """Which nodes count for a constraint, of a pod."""

    def __init__(self, subject: Subject) -> None:
        self._required = required_of(subject.pod)
        self._tolerations = tuple(subject.pod.spec.tolerations)

    def counts(self, constraint: Constraint, state: NodeState) -> bool:
        if constraint.honor_affinity and self._required is not None and not self._required.chooses(state):
            return False
        return not (constraint.honor_taints and state.taints and keeps_out(state.taints, self._tolerations))


def _has_all(state: NodeState, constraints: Sequence[Constraint]) -> bool:
    return all(constraint.key in state.labels for constraint in constraints)


# Filtering.


@dataclass(frozen=True, slots=True)
class _Allowed:
    """How many pods that count a domain may have before the pod comes: the constraint's limit."""

    key: str
    limit: int
    counts: Mapping[str, int]


def _allowed(subject: Subject, cache: Cache) -> list[_Allowed] | None:
    constraints = constraints_of(subject, _HARD)
    if not constraints:
        return None
    counted = [_counted(constraint, subject.facts, cache) for constraint in constraints]
    inclusion = _Inclusion(subject)
    domains: list[dict[str, int]] = [{} for _ in constraints]
    for state in cache.nodes():
        if not _has_all(state, constraints):
            continue
        for constraint, pods, counts in zip(constraints, counted, domains, strict=True):
            if inclusion.counts(constraint, state):
                value = state.labels[constraint.key]
                counts[value] = counts.get(value, 0) + pods.get(state.name, 0)
    allowed = []
    for constraint, counts in zip(constraints, domains, strict=True):
        fewest = min(counts.values(), default=0) if len(counts) >= constraint.min_domains else 0
        itself = constraint.selector.matches(subject.facts.labels)
        allowed.append(_Allowed(constraint.key, fewest + constraint.max_skew - itself, counts))
    return allowed


def filter_skew(allowed: Sequence[_Allowed], state: NodeState) -> Refusal | None:
    """Refuses nodes in domains that would be too far ahead of the emptiest."""
    for rule in allowed:
        value = state.labels.get(rule.key)
        if value is None:
            return _UNLABELLED
        if rule.counts.get(value, 0) > rule.limit:
            return _UNEVEN
    return None


# Scoring.


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Pods that count, by node where the domain is the node itself, else by the label's value."""

    key: str
    by_node: bool
    counts: Mapping[str, int]
    weight: float
    floor: int


@dataclass(frozen=True, slots=True)
class _Soft:
    parts: tuple[_Weighed, ...]
    ignored: frozenset[str]


def _soft(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> _Soft | None:
    if subject.pod.spec.topologySpreadConstraints:
        constraints, own = constraints_of(subject, _SOFT), True
    else:
        together = cache.owners.selector_for(subject)
        constraints, own = () if together.empty else _defaults(together), False
    if not constraints:
        return None
    # By default, nodes without a zone are spread over all the same.
    ignored = frozenset(state.name for state in nodes if own and not _has_all(state, constraints))
    inclusion = _Inclusion(subject)
    parts = []
    for constraint in constraints:
        pods = _counted(constraint, subject.facts, cache)
        if constraint.key == HOSTNAME:
            parts.append(_weighed(constraint, pods, len(nodes) - len(ignored)))
            continue
        domains = {state.labels.get(constraint.key, ""): 0 for state in nodes if state.name not in ignored}
        if domains.keys() <= {""}:
            continue  # no node has the label
        for name, count in pods.items():
            state = cache.get(name)
            if state is None or (own and not _has_all(state, constraints)):
                continue
            value = state.labels.get(constraint.key, "")
            if value in domains and inclusion.counts(constraint, state):
                domains[value] += count
        parts.append(_weighed(constraint, domains, len(domains)))
    return _Soft(tuple(parts), ignored)


@lru_cache(maxsize=1024)
def _defaults(together: LabelSelector) -> tuple[Constraint, ...]:
    return tuple(replace(constraint, selector=together) for constraint in DEFAULTS)


def _weighed(constraint: Constraint, counts: Mapping[str, int], domains: int) -> _Weighed:
    # Few domains with many pods each must not drown many domains with few.
    weight = math.log(domains + 2)
    return _Weighed(constraint.key, constraint.key == HOSTNAME, counts, weight, constraint.max_skew - 1)


def crowding(soft: _Soft, state: NodeState) -> int:
    """How many pods that count are in the node's domains, weighed; -1 where that is not asked."""
    if state.name in soft.ignored:
        return _NOT_SCORED
    total = 0.0
    for part in soft.parts:
        value = state.labels.get(part.key)
        if value is not None:
            total += part.counts.get(state.name if part.by_node else value, 0) * part.weight + part.floor
    return math.floor(total + 0.5)


def least_crowded(scores: list[int]) -> list[int]:
    """The emptiest is best."""
    asked = [score for score in scores if score != _NOT_SCORED]
    lowest, highest = min(asked, default=0), max(asked, default=0)
    if not highest:
        return [0 if score == _NOT_SCORED else MAX_SCORE for score in scores]
    return [
        0 if score == _NOT_SCORED else MAX_SCORE * (highest + lowest - score) // highest for score in scores
    ]


# Trying again.


def helps(subject: Subject, change: PodChange, cache: Cache) -> bool:
    """Whether another pod began or ceased to count for one of the pod's constraints."""
    facts = [facts for facts in (change.old, change.new) if facts is not None]
    if any(entry.namespace != subject.facts.namespace for entry in facts):
        return False
    return any(
        _counts(constraint, change.old) != _counts(constraint, change.new)
        for constraint in constraints_of(subject, _HARD)
    )


def _counts(constraint: Constraint, facts: PodFacts | None) -> bool:
    return facts is not None and not facts.ending and constraint.selector.matches(facts.labels)


SPREAD = Plugin(
    "PodTopologySpread",
    pre_filter=_allowed,
    filter=filter_skew,
    pre_score=_soft,
    score=crowding,
    normalize=least_crowded,
    weight=2,
    events=frozenset({Event.NODE, Event.NODE_GONE}),
    helps=helps,
)
