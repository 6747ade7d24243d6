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
_HALF = MAX_SCORE // 2
_NO_CHANGE = _HALF + _HALF // 2
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


def _asked(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> tuple[int, int] | None:
    """Cpu and memory; None for a pod that asks for neither: it changes no balance."""
    requests = subject.facts.needs.requests
    asked = (requests.get("cpu", 0), requests.get("memory", 0))
    return asked if any(asked) else None


def balanced(asked: tuple[int, int], state: NodeState) -> int:
    """What the pod does to the balance of cpu and memory: 75 nothing, more when it mends it, 50 to 100.

    Source: since 1.36 the balance with the pod is compared to the one without it.
    """
    cpu, memory = state.allocatable.get("cpu", 0), state.allocatable.get("memory", 0)
    if not cpu or not memory:
        return _NO_CHANGE
    taken_cpu, taken_memory = state.requested.get("cpu", 0), state.requested.get("memory", 0)
    without = _balance(taken_cpu / cpu, taken_memory / memory)
    together = _balance((taken_cpu + asked[0]) / cpu, (taken_memory + asked[1]) / memory)
    return _HALF + (_HALF + together - without) // 2


def _balance(cpu: float, memory: float) -> int:
    return int((1 - abs(min(1.0, cpu) - min(1.0, memory)) / 2) * MAX_SCORE)


FIT = Plugin(
    "NodeResourcesFit",
    pre_filter=_wanted,
    filter=fits,
    pre_score=_needs,
    score=least_allocated,
    events=frozenset({Event.NODE, Event.POD_GONE}),
)
BALANCED = Plugin("NodeResourcesBalancedAllocation", pre_score=_asked, score=balanced)
