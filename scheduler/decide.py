"""Where a pod goes: (pod, cluster, profile) -> Chosen or Unschedulable. Pure.

Filter the nodes, score those that fit, take the best. In large clusters only a part is looked at,
beginning where the last decision ended, as upstream does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.cache import Cache, NodeState
from scheduler.framework import Filter, Plugin, Refusal
from scheduler.pods import Subject

# What upstream's DynamicResources says, asked before preemption, of a pod without resource claims.
_NO_CLAIMS = "no new claims to deallocate"
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
    subject: Subject, cluster: Cache, profile: Sequence[Plugin], *, start: int, tie: float
) -> Chosen | Unschedulable:
    """Chooses a node.

    Args:
        start: index, in `cluster.nodes()`, of the first node to look at.
        tie: a number in [0, 1) that decides between nodes of the same score.
    """
    nodes = cluster.nodes()
    filters = _filters(subject, cluster, profile)
    enough = wanted_feasible(len(nodes))
    feasible: list[NodeState] = []
    refusals: Counter[str] = Counter()
    failed: set[str] = set()
    helpless = 0
    examined = 0
    for offset in range(len(nodes)):
        state = nodes[(start + offset) % len(nodes)]
        examined += 1
        refusal = _refusal(filters, state, failed)
        if refusal is None:
            feasible.append(state)
            if len(feasible) >= enough:
                break
        else:
            refusals.update(refusal.reasons)
            helpless += not refusal.resolvable
    if not feasible:
        return Unschedulable(message(len(nodes), refusals, helpless), frozenset(failed))
    return Chosen(_best(subject, cluster, profile, feasible, tie).name, examined, len(feasible))


_Prepared = tuple[str, Filter, object]


def _filters(subject: Subject, cluster: Cache, profile: Sequence[Plugin]) -> list[_Prepared]:
    """The filters that have something to say of this pod."""
    found: list[_Prepared] = []
    for plugin in profile:
        if plugin.filter is None or plugin.pre_filter is None:
            continue
        facts = plugin.pre_filter(subject, cluster)
        if facts is not None:
            found.append((plugin.name, plugin.filter, facts))
    return found


def _refusal(filters: Sequence[_Prepared], state: NodeState, failed: set[str]) -> Refusal | None:
    for name, refuses, facts in filters:
        refusal = refuses(facts, state)
        if refusal is not None:
            failed.add(name)
            return refusal
    return None


def _best(
    subject: Subject, cluster: Cache, profile: Sequence[Plugin], feasible: list[NodeState], tie: float
) -> NodeState:
    if len(feasible) == 1:
        return feasible[0]
    totals = [0] * len(feasible)
    for plugin in profile:
        if plugin.score is None or plugin.pre_score is None:
            continue
        facts = plugin.pre_score(subject, cluster, feasible)
        if facts is None:
            continue
        score, weight = plugin.score, plugin.weight
        scores = plugin.normalize([score(facts, state) for state in feasible])
        totals = [total + weight * points for total, points in zip(totals, scores, strict=True)]
    highest = max(totals)
    best = [state for state, total in zip(feasible, totals, strict=True) if total == highest]
    return best[int(tie * len(best))]


def message(count: int, refusals: Counter[str], helpless: int) -> str:
    """Upstream's FailedScheduling text: `0/2 nodes are available: 1 Insufficient cpu, ...`."""
    if not count:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in refusals.items()))
    return f"0/{count} nodes are available: {listed}. {_NO_CLAIMS}, {preemption_text(count, helpless)}"


def preemption_text(count: int, helpless: int) -> str:
    """What is said of preemption when there is nobody to preempt."""
    parts = []
    if count > helpless:
        parts.append(f"{count - helpless} No preemption victims found for incoming pod")
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    return f"preemption: 0/{count} nodes are available: {', '.join(sorted(parts))}."
