"""Nodes: lost heartbeats, and the taints and pod conditions that follow.

A node whose heartbeats stop becomes Ready=Unknown after the grace; its pods turn not ready at
once; NoSchedule taints follow the conditions. The NoExecute taints come from `nodeeviction`, at
the zone's rate. How old a heartbeat is counts from when this process saw the lease change, never
from `renewTime`: node clocks may be off, and a new leader gives each node a fresh grace.

Source: upstream's node lifecycle controller.
"""

from __future__ import annotations

from typing import Any

from controller_manager.podstate import node_index
from podyard.api import meta, times
from podyard.api.types import Key, Lease, Node, Pod, Taint, copy_of
from podyard.control.actions import Action, Actions, Emit, Patch, RequeueAfter, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

GRACE_S = 50.0
LEASE_NAMESPACE = "kube-node-lease"
NO_SCHEDULE = "NoSchedule"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_LOST = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
_NEVER = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
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


def reconcile(view: View, key: Key, *, grace_s: float, known: dict[Key, Node]) -> Actions:
    """One node.

    Args:
        known: nodes that this process has met; kept up to date here. It greets and dismisses each once.

    Returns:
        The status write when heartbeats were lost, else the taint Update when taints are off, the
        patches of its pods while it is not ready, and a RequeueAfter for the end of the grace.
    """
    node = view.get(Node, key)
    return [*_met(known, key, node), *_looked_after(view, key, node, grace_s)]


def _met(known: dict[Key, Node], key: Key, node: Node | None) -> list[Action]:
    before = known.pop(key, None)
    if node is not None:
        known[key] = node
    if (before is None) == (node is None):
        return []
    about, reason, text = node, "RegisteredNode", f"Registered Node {key.name} in Controller"
    if node is None:
        about, reason, text = before, "RemovingNode", f"Removing Node {key.name} from Controller"
    assert about is not None
    return [Emit(about, "Normal", reason, f"Node {key.name} event: {text}")]


def _looked_after(view: View, key: Key, node: Node | None, grace_s: float) -> list[Action]:
    if node is None or node.metadata.HasField("deletionTimestamp"):
        return []
    left_s = heartbeat_at_s(view, key) + grace_s - view.now_s
    if left_s <= 0 and not _is_unknown(node):
        return _lost(node, view.now_s)
    actions: list[Action] = []
    tainted = _with_taints(node, view.now_s)
    if tainted is not None:
        actions.append(Update(tainted))
    if not meta.is_condition_true(node.status.conditions, "Ready") and node.status.conditions:
        actions += _unready_pods(view, node)
    if left_s > 0:
        actions.append(RequeueAfter(left_s))
    return actions


def heartbeat_at_s(view: View, key: Key) -> float:
    """When the node was last heard of, by this process's clock."""
    lease_at_s = view.seen_at_s(Lease, Key(LEASE_NAMESPACE, key.name))
    if lease_at_s is None:
        # It has not made its lease yet: its object is its only sign of life.
        lease_at_s = view.seen_at_s(Node, key) or view.now_s
    return max(lease_at_s, view.started_at_s)


def _is_unknown(node: Node) -> bool:
    ready = meta.condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "Unknown"


def _lost(node: Node, now_s: float) -> list[Action]:
    wanted = copy_of(node)
    for kind in _CONDITIONS:
        present = meta.condition(node.status.conditions, kind)
        reason, message = _NEVER if present is None else _LOST
        meta.set_condition(wanted.status.conditions, kind, "Unknown", now_s, reason=reason, message=message)
    name = node.metadata.name
    event = Emit(node, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady")
    return [Update(wanted, subresource="status", reason=f"node {name} lost its heartbeat"), event]


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


def _with_taints(node: Node, now_s: float) -> Node | None:
    """The node with the NoSchedule taints that its conditions ask for; None when it has them.

    A node that has not reported keeps the taint that it was admitted with.
    """
    if not node.status.conditions:
        return None
    wanted = wanted_taints(node)
    kept = [
        taint
        for taint in node.spec.taints
        if taint.effect != NO_SCHEDULE or taint.key not in _MANAGED or taint.key in wanted
    ]
    present = {taint.key for taint in kept if taint.effect == NO_SCHEDULE}
    fresh = [name for name in wanted if name not in present]
    if not fresh and len(kept) == len(node.spec.taints):
        return None
    changed = copy_of(node)
    del changed.spec.taints[:]
    changed.spec.taints.extend(kept)
    for name in fresh:
        taint = Taint(key=name, effect=NO_SCHEDULE)
        taint.timeAdded.seconds = int(now_s)
        changed.spec.taints.append(taint)
    return changed


def _unready_pods(view: View, node: Node) -> list[Action]:
    """Pods of a node that is not ready are not ready: Services leave them out within seconds."""
    actions: list[Action] = []
    for pod in view.by_index(Pod, "node", node.metadata.name):
        if not meta.is_condition_true(pod.status.conditions, "Ready"):
            continue
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": times.text(int(view.now_s))}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        key = Key(pod.metadata.namespace, pod.metadata.name)
        actions.append(
            Patch(Pod, key, body, subresource="status", patch_type="application/strategic-merge-patch+json")
        )
        actions.append(Emit(pod, "Warning", "NodeNotReady", "Node is not ready"))
    return actions


def _node_of_lease(old: Any, new: Any, view: View) -> list[Key]:
    lease = new if new is not None else old
    return [Key("", lease.metadata.name)] if lease.metadata.namespace == LEASE_NAMESPACE else []


def controller(grace_s: float = GRACE_S) -> ControllerSpec:
    known: dict[Key, Node] = {}
    return ControllerSpec(
        name="node-lifecycle-controller",
        for_=Node,
        maps={Lease: _node_of_lease},
        reads=(Pod,),
        indexes={Pod: {"node": node_index}},
        reconcile=lambda view, key: reconcile(view, key, grace_s=grace_s, known=known),
        reporter="node-controller",
        workers=4,
    )
