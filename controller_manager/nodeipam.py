"""Gives each node a range of pod addresses: the lowest free /24 of the cluster's range.

Source: upstream's range allocator of the node IPAM controller.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from podyard.api.types import Key, Node, copy_of
from podyard.control.actions import Action, Actions, Emit, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

NODE_PREFIX = 24


def reconcile(view: View, key: Key, *, cluster_cidr: str) -> Actions:
    """Ranges for all nodes that have none.

    Returns:
        One Update a node, or an event where no range is free.
    """
    nodes = view.list(Node)
    used = {node.spec.podCIDR for node in nodes if node.spec.podCIDR}
    free = _free_ranges(cluster_cidr, used)
    actions: list[Action] = []
    for node in nodes:
        if node.spec.podCIDR or node.metadata.HasField("deletionTimestamp"):
            continue
        cidr = next(free, None)
        if cidr is None:
            name = node.metadata.name
            actions.append(
                Emit(node, "Normal", "CIDRNotAvailable", f"Node {name} status is now: CIDRNotAvailable")
            )
            continue
        wanted = copy_of(node)
        wanted.spec.podCIDR = cidr
        wanted.spec.podCIDRs.append(cidr)
        actions.append(Update(wanted, reason=f"pod range {cidr} for node {node.metadata.name}"))
    return actions


def _free_ranges(cluster_cidr: str, used: set[str]) -> Iterator[str]:
    for subnet in ipaddress.ip_network(cluster_cidr).subnets(new_prefix=NODE_PREFIX):
        if str(subnet) not in used:
            yield str(subnet)


def controller(cluster_cidr: str) -> ControllerSpec:
    return ControllerSpec(
        name="node-ipam",
        for_=Node,
        reconcile=lambda view, key: reconcile(view, key, cluster_cidr=cluster_cidr),
        workers=1,
        single=True,
    )
