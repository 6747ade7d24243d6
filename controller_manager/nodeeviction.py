"""NoExecute taints of nodes that are not ready, at the rate that their zone allows.

One zone that loses most of its nodes is more likely cut off than dead, so evictions slow down or
stop there; when every zone is dead, it is this side that is cut off, and nobody is evicted. The
rate is kept by the taints themselves: the newest one of a zone says when the next may come.

Source: upstream's node lifecycle controller (ComputeZoneState, handleDisruption).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podyard.api import meta
from podyard.api.types import Key, Node, Taint, copy_of
from podyard.control.actions import Action, Actions, RequeueAfter, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

NO_EXECUTE = "NoExecute"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_KEYS = (NOT_READY, UNREACHABLE)
_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
RATE_PER_S = 0.1
SECONDARY_RATE_PER_S = 0.01
UNHEALTHY_SHARE = 0.55
LARGE_ZONE = 50

NORMAL = "Normal"
PARTIAL = "PartialDisruption"
FULL = "FullDisruption"


@dataclass(frozen=True, slots=True)
class Limits:
    """Flags of upstream's controller: --node-eviction-rate and its kin."""

    rate_per_s: float = RATE_PER_S
    secondary_rate_per_s: float = SECONDARY_RATE_PER_S


def wanted_taint(node: Node) -> str:
    """Key of the NoExecute taint that a node's Ready condition asks for; empty for none."""
    ready = meta.condition(node.status.conditions, "Ready")
    if ready is None or ready.status == "True":
        return ""
    return UNREACHABLE if ready.status == "Unknown" else NOT_READY


def zone_state(nodes: Sequence[Node]) -> str:
    """Normal, PartialDisruption or FullDisruption."""
    broken = sum(1 for node in nodes if wanted_taint(node))
    if broken == len(nodes):
        return FULL
    if broken > 2 and broken / len(nodes) >= UNHEALTHY_SHARE:
        return PARTIAL
    return NORMAL


def zones(nodes: Sequence[Node]) -> dict[tuple[str, str], list[Node]]:
    """Nodes by region and zone."""
    found: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        labels = node.metadata.labels
        found.setdefault((labels.get(_REGION, ""), labels.get(_ZONE, "")), []).append(node)
    return found


def reconcile(view: View, key: Key, limits: Limits = Limits()) -> Actions:
    """All nodes at once.

    Returns:
        Updates that set, swap or take away NoExecute taints, and a RequeueAfter for the next one
        that the rate lets in.
    """
    nodes = [node for node in view.list(Node) if node.status.conditions]
    by_zone = zones(nodes)
    if nodes and all(zone_state(members) == FULL for members in by_zone.values()):
        return [Update(changed) for node in nodes if (changed := _without(node)) is not None]
    actions: list[Action] = []
    for _, members in sorted(by_zone.items()):
        actions += _zone(members, limits, view.now_s)
    return actions


def _zone(members: list[Node], limits: Limits, now_s: float) -> list[Action]:
    actions: list[Action] = []
    waiting: list[Node] = []
    for node in members:
        wanted, present = wanted_taint(node), _present(node)
        if not wanted:
            changed = _without(node)
            if changed is not None:
                actions.append(Update(changed))
        elif present and present.key != wanted:
            actions.append(Update(_swapped(node, wanted, now_s)))
        elif not present:
            waiting.append(node)
    rate = _rate(zone_state(members), len(members), limits)
    if not waiting or rate <= 0:
        return actions
    next_s = _newest_s(members) + 1 / rate
    if next_s > now_s:
        return [*actions, RequeueAfter(next_s - now_s)]
    waiting.sort(key=lambda node: (_down_since_s(node), node.metadata.name))
    actions.append(Update(_swapped(waiting[0], wanted_taint(waiting[0]), now_s)))
    if len(waiting) > 1:
        actions.append(RequeueAfter(1 / rate))
    return actions


def _rate(state: str, size: int, limits: Limits) -> float:
    if state == PARTIAL:
        return limits.secondary_rate_per_s if size > LARGE_ZONE else 0.0
    return limits.rate_per_s


def _present(node: Node) -> Taint | None:
    return next((t for t in node.spec.taints if t.effect == NO_EXECUTE and t.key in _KEYS), None)


def _newest_s(members: list[Node]) -> float:
    added = [taint.timeAdded.seconds for node in members if (taint := _present(node)) is not None]
    return float(max(added, default=0))


def _down_since_s(node: Node) -> int:
    ready = meta.condition(node.status.conditions, "Ready")
    return ready.lastTransitionTime.seconds if ready is not None else 0


def _without(node: Node) -> Node | None:
    kept = [taint for taint in node.spec.taints if taint.effect != NO_EXECUTE or taint.key not in _KEYS]
    if len(kept) == len(node.spec.taints):
        return None
    changed = copy_of(node)
    del changed.spec.taints[:]
    changed.spec.taints.extend(kept)
    return changed


def _swapped(node: Node, key: str, now_s: float) -> Node:
    changed = _without(node) or copy_of(node)
    taint = Taint(key=key, effect=NO_EXECUTE)
    taint.timeAdded.seconds = int(now_s)
    changed.spec.taints.append(taint)
    return changed


def controller(limits: Limits = Limits()) -> ControllerSpec:
    return ControllerSpec(
        name="node-eviction",
        for_=Node,
        reconcile=lambda view, key: reconcile(view, key, limits),
        reporter="node-controller",
        workers=1,
        single=True,
    )
