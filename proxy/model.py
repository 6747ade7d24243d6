"""From the cluster's nodes to what this node's network must look like. Pure.

Called by the shell whenever a node changes. Services and their endpoints join the model next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from podyard.api.types import Node


@dataclass(frozen=True, slots=True)
class Network:
    """The ranges of the cluster."""

    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/16"


@dataclass(frozen=True, slots=True)
class Desired:
    """What should be.

    Attributes:
        routes: pod range of another node -> that node's address.
        own_range: this node's pod range; empty before it has one.
    """

    routes: tuple[tuple[str, str], ...]
    own_range: str


def desired(nodes: Iterable[Node], own_name: str) -> Desired:
    """Routes to all other nodes that have a range and an address."""
    routes, own_range = [], ""
    for node in nodes:
        if node.metadata.name == own_name:
            own_range = node.spec.podCIDR
            continue
        address = next((entry.address for entry in node.status.addresses if entry.type == "InternalIP"), "")
        if node.spec.podCIDR and address:
            routes.append((node.spec.podCIDR, address))
    return Desired(tuple(sorted(routes)), own_range)


@dataclass(frozen=True, slots=True)
class RouteChanges:
    """Routes to set and to remove."""

    replace: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


def route_changes(wanted: Desired, present: dict[str, str]) -> RouteChanges:
    """What turns the present routes into the wanted ones.

    Args:
        present: pod range -> next hop, of the routes that this process owns.
    """
    routes = dict(wanted.routes)
    replace = tuple(sorted(entry for entry in routes.items() if present.get(entry[0]) != entry[1]))
    return RouteChanges(replace, tuple(sorted(cidr for cidr in present if cidr not in routes)))
