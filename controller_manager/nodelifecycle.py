"""Node taints follow node conditions.

NoSchedule taints for what a node reports (not ready, unreachable, pressure, no network, cordoned).
Heartbeat loss and eviction build on this. Source: upstream's node lifecycle controller.
"""

from __future__ import annotations

from podyard.api.types import Key, Node, Taint, copy_of
from podyard.control.actions import Actions, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

NO_SCHEDULE = "NoSchedule"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# (condition, status) -> taint key.
_TAINTS = {
    ("Ready", "False"): "node.kubernetes.io/not-ready",
    ("Ready", "Unknown"): "node.kubernetes.io/unreachable",
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_MANAGED = frozenset({*_TAINTS.values(), UNSCHEDULABLE})


def wanted_taints(node: Node) -> list[str]:
    """Keys of the NoSchedule taints that a node's state asks for."""
    keys = [
        _TAINTS[condition.type, condition.status]
        for condition in node.status.conditions
        if (condition.type, condition.status) in _TAINTS
    ]
    if node.spec.unschedulable:
        keys.append(UNSCHEDULABLE)
    return keys


def reconcile(view: View, key: Key) -> Actions:
    """Brings a node's NoSchedule taints in line with its conditions; others stay.

    Returns:
        One Update, or nothing.
    """
    node = view.get(Node, key)
    if node is None or not node.status.conditions:
        return []  # a node that has not reported keeps the taint that it was admitted with
    wanted = wanted_taints(node)
    kept = [
        taint
        for taint in node.spec.taints
        if taint.effect != NO_SCHEDULE or taint.key not in _MANAGED or taint.key in wanted
    ]
    present = {taint.key for taint in kept if taint.effect == NO_SCHEDULE}
    fresh = [name for name in wanted if name not in present]
    if not fresh and len(kept) == len(node.spec.taints):
        return []
    changed = copy_of(node)
    del changed.spec.taints[:]
    changed.spec.taints.extend(kept)
    for name in fresh:
        taint = Taint(key=name, effect=NO_SCHEDULE)
        taint.timeAdded.seconds = int(view.now_s)
        changed.spec.taints.append(taint)
    return [Update(changed)]


NODE_LIFECYCLE = ControllerSpec(name="node-lifecycle", for_=Node, reconcile=reconcile, workers=2)
