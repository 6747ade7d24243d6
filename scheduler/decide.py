"""Where a pod goes: (nodes, pod, profile) -> Chosen or Unschedulable. Pure.

Filter the nodes, score those that fit, take the best. In large clusters only a part is looked at,
beginning where the last decision ended, as upstream does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from podyard.api.types import Pod
from scheduler.cache import NodeState
from scheduler.framework import Plugin, Refusal

_MIN_FEASIBLE = 100
_MIN_PERCENTAGE = 5


@dataclass(frozen=True, slots=True)
class Chosen:
    """`examined` is how many nodes were looked at, for the next decision's start."""

    node: str
    examined: int
    feasible: int


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node fits.

    Attributes:
        message: as FailedScheduling and the pod's condition show it.
        failed: names of the plugins that refused.
    """

    message: str
    failed: frozenset[str]


def wanted_feasible(count: int) -> int:
    """How many fitting nodes are enough (upstream: numFeasibleNodesToFind)."""
    if count < _MIN_FEASIBLE:
        return count
    percentage = max(50 - count // 125, _MIN_PERCENTAGE)
    return max(count * percentage // 100, _MIN_FEASIBLE)


def decide(
    pod: Pod, nodes: Sequence[NodeState], profile: Sequence[Plugin], *, start: int, tie: float
) -> Chosen | Unschedulable:
    """Chooses a node.

    Args:
        nodes: all nodes, always in the same order.
        start: index of the first node to look at.
        tie: a number in [0, 1) that decides between nodes of the same score.
    """
    prepared = [(plugin, plugin.prepare(pod)) for plugin in profile]
    enough = wanted_feasible(len(nodes))
    feasible: list[NodeState] = []
    refusals: Counter[str] = Counter()
    failed: set[str] = set()
    helpless = 0
    examined = 0
    for offset in range(len(nodes)):
        state = nodes[(start + offset) % len(nodes)]
        examined += 1
        refusal = _refusal(prepared, state, failed)
        if refusal is None:
            feasible.append(state)
            if len(feasible) >= enough:
                break
        else:
            refusals.update(refusal.reasons)
            helpless += not refusal.resolvable
    if not feasible:
        return Unschedulable(message(len(nodes), refusals, helpless), frozenset(failed))
    return Chosen(_best(prepared, feasible, tie).name, examined, len(feasible))


def _refusal(prepared: Sequence[tuple[Plugin, object]], state: NodeState, failed: set[str]) -> Refusal | None:
    for plugin, facts in prepared:
        if plugin.filter is None:
            continue
        refusal = plugin.filter(facts, state)
        if refusal is not None:
            failed.add(plugin.name)
            return refusal
    return None


def _best(prepared: Sequence[tuple[Plugin, object]], feasible: list[NodeState], tie: float) -> NodeState:
    if len(feasible) == 1:
        return feasible[0]
    totals = [0] * len(feasible)
    for plugin, facts in prepared:
        if plugin.score is None:
            continue
        scores = plugin.normalize([plugin.score(facts, state) for state in feasible])
        for index, score in enumerate(scores):
            totals[index] += score * plugin.weight
    highest = max(totals)
    best = [state for state, total in zip(feasible, totals, strict=True) if total == highest]
    return best[int(tie * len(best))]


def message(count: int, refusals: Counter[str], helpless: int) -> str:
    """Upstream's FailedScheduling text: `0/2 nodes are available: 1 Insufficient cpu, ...`."""
    if not count:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in refusals.items()))
    return f"0/{count} nodes are available: {listed}. {preemption_text(count, helpless)}"


def preemption_text(count: int, helpless: int) -> str:
    """What is said of preemption when there is nobody to preempt."""
    parts = []
    if count > helpless:
        parts.append(f"{count - helpless} No preemption victims found for incoming pod")
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    return f"preemption: 0/{count} nodes are available: {', '.join(sorted(parts))}."
