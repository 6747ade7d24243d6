"""From nodes to routes."""

from __future__ import annotations

import pytest

from podyard.api.types import Node
from proxy.model import RouteChanges, desired, route_changes


def node(name: str, cidr: str, *addresses: tuple[str, str]) -> Node:
    return Node(
        metadata={"name": name},
        spec={"podCIDR": cidr},
        status={"addresses": [{"type": kind, "address": address} for kind, address in addresses]},
    )


NODES = [
    node("b", "10.244.1.0/24", ("Hostname", "b"), ("InternalIP", "192.0.2.2")),
    node("a", "10.244.0.0/24", ("InternalIP", "192.0.2.1")),
    node("no-range", "", ("InternalIP", "192.0.2.3")),
    node("no-address", "10.244.3.0/24", ("Hostname", "x")),
]


def test_routes_lead_to_every_other_node_that_can_be_reached():
    own = desired(NODES, "a")
    assert (own.routes, own.own_range) == ((("10.244.1.0/24", "192.0.2.2"),), "10.244.0.0/24")
    other = desired(NODES, "no-range")
    assert other.routes == (("10.244.0.0/24", "192.0.2.1"), ("10.244.1.0/24", "192.0.2.2"))
    assert other.own_range == ""


@pytest.mark.parametrize(
    ("present", "changes"),
    [
        ({}, RouteChanges((("10.244.1.0/24", "192.0.2.2"),), ())),
        ({"10.244.1.0/24": "192.0.2.2"}, RouteChanges()),
        ({"10.244.1.0/24": "192.0.2.9"}, RouteChanges((("10.244.1.0/24", "192.0.2.2"),), ())),
        ({"10.244.1.0/24": "192.0.2.2", "10.244.7.0/24": "192.0.2.7"}, RouteChanges((), ("10.244.7.0/24",))),
    ],
)
def test_only_what_differs_is_changed(present, changes):
    assert route_changes(desired(NODES, "a"), present) == changes
