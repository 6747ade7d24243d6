"""NodeResourcesFit and NodeResourcesBalancedAllocation.

Sources: noderesources/fit.go, least_allocated.go, balanced_allocation.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from podyard.api import quantity
from scheduler.cache import Cache, NodeState
from scheduler.framework import MAX_SCORE, Event, Plugin, Refusal
from scheduler.pods import PodNeeds, Subject

_SCORED = ("cpu", "memory")
_ORDER = {name: place for place, name in enumerate(("cpu", "memory", "ephemeral-storage"))}


def _wanted(subject: Subject, cache: Cache) -> list[tuple[str, int]]:
    """What is asked for, in upstream's order."""
    requests = subject.facts.needs.requests
    return sorted(requests.items(), key=lambda item: (_ORDER.get(item[0], len(_ORDER)), item[0]))


def fits(wanted: Sequence[tuple[str, int]], state: NodeState) -> Refusal | None:
    """Whether what is asked for is free."""
    reasons = []
    resolvable = True
    if (len(state.pods) + 1) * quantity.NANOS > state.allocatable.get("pods", 0):
        reasons.append("Too many pods")
    for name, nanos in wanted:
        allocatable = state.allocatable.get(name, 0)
        if nanos > allocatable - state.requested.get(name, 0):
            reasons.append(f"Insufficient {name}")
            resolvable = resolvable and nanos <= allocatable
    return Refusal(tuple(reasons), resolvable) if reasons else None


def _needs(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> PodNeeds:
    return subject.facts.needs


def least_allocated(needs: PodNeeds, state: NodeState) -> int:
    """The free share of cpu and memory after the pod, 0 to 100."""
    total, counted = 0, 0
    for name in _SCORED:
        allocatable = state.allocatable.get(name, 0)
        if not allocatable:
            continue
        counted += 1
        wanted = state.scored.get(name, 0) + needs.scored[name]
        if wanted <= allocatable:
            total += (allocatable - wanted) * MAX_SCORE // allocatable
    return total // counted if counted else 0


def _asked(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> Sequence[int] | None:
    """None for a pod that asks for nothing: it changes no balance."""
    requests = subject.facts.needs.requests
    asked = [requests.get(name, 0) for name in _SCORED]
    return asked if any(asked) else None


def balanced(asked: Sequence[int], state: NodeState) -> int:
    """What the pod does to the balance of cpu and memory: 75 nothing, more when it mends it, 50 to 100."""
    # Source: 1.36 compares the balance with the pod to the one without.
    without, together = [], []
    for name, nanos in zip(_SCORED, asked, strict=True):
        allocatable = state.allocatable.get(name, 0)
        if allocatable:
            taken = state.requested.get(name, 0)
            without.append(min(taken / allocatable, 1.0))
            together.append(min((taken + nanos) / allocatable, 1.0))
    half = MAX_SCORE // 2
    return half + (half + _balance(together) - _balance(without)) // 2


def _balance(fractions: Sequence[float]) -> int:
    if len(fractions) < 2:
        return MAX_SCORE
    return int((1 - abs(fractions[0] - fractions[1]) / 2) * MAX_SCORE)


FIT = Plugin(
    "NodeResourcesFit",
    pre_filter=_wanted,
    filter=fits,
    pre_score=_needs,
    score=least_allocated,
    events=frozenset({Event.NODE, Event.POD_GONE}),
)
BALANCED = Plugin("NodeResourcesBalancedAllocation", pre_score=_asked, score=balanced)
