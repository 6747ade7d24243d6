"""NodeResourcesFit and NodeResourcesBalancedAllocation.

Sources: noderesources/fit.go, least_allocated.go, balanced_allocation.go.
"""

from __future__ import annotations

from podyard.api import quantity
from podyard.api.types import Pod
from scheduler.cache import NodeState, PodNeeds, needs_of
from scheduler.framework import MAX_SCORE, Plugin, Refusal

_SCORED = ("cpu", "memory")


def fits(needs: PodNeeds, state: NodeState) -> Refusal | None:
    """Whether what is asked for is free."""
    reasons = []
    resolvable = True
    allowed = state.allocatable.get("pods", 0) // quantity.NANOS
    if len(state.pods) + 1 > allowed:
        reasons.append("Too many pods")
    for name, nanos in sorted(needs.requests.items(), key=lambda item: _order(item[0])):
        allocatable = state.allocatable.get(name, 0)
        if nanos > allocatable - state.requested.get(name, 0):
            reasons.append(f"Insufficient {name}")
            resolvable = resolvable and nanos <= allocatable
    return Refusal(tuple(reasons), resolvable) if reasons else None


def _order(name: str) -> tuple[int, str]:
    known = ("cpu", "memory", "ephemeral-storage")
    return (known.index(name) if name in known else len(known), name)


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


def balanced(needs: PodNeeds, state: NodeState) -> int:
    """Higher where cpu and memory would be used alike, 0 to 100."""
    fractions = []
    for name in _SCORED:
        allocatable = state.allocatable.get(name, 0)
        if allocatable:
            wanted = state.requested.get(name, 0) + needs.requests.get(name, 0)
            fractions.append(min(wanted / allocatable, 1.0))
    if len(fractions) < 2:
        return MAX_SCORE
    deviation = abs(fractions[0] - fractions[1]) / 2
    return int((1 - deviation) * MAX_SCORE)


def _needs(pod: Pod) -> PodNeeds:
    return needs_of(pod)


FIT = Plugin(
    "NodeResourcesFit",
    prepare=_needs,
    filter=fits,
    score=least_allocated,
    events=frozenset({"node", "pod deleted"}),
)
BALANCED = Plugin("NodeResourcesBalancedAllocation", prepare=_needs, score=balanced)
