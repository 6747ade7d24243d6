"""Which remembered UDP flows lead nowhere any more."""

from __future__ import annotations

import pytest

from proxy.flows import Flow, parsed, stale
from proxy.model import Balanced, Network

LISTING = "\n".join(
    (
        "udp      17 29 src=10.244.0.2 dst=10.96.0.9 sport=4000 dport=53 "
        "src=10.244.1.3 dst=10.244.0.2 sport=5353 dport=4000 [ASSURED] mark=0 use=1",
        "udp      17 3 src=172.1.0.1 dst=172.1.0.2 sport=1 dport=30053 [UNREPLIED] "
        "src=172.1.0.2 dst=172.1.0.1 sport=30053 dport=1 mark=0 use=1",
        "conntrack v1.4.8 (conntrack-tools): 2 flow entries have been shown.",
    )
)


def service(name="a", *, address="10.96.0.9", serving=("10.244.1.3",), **fields) -> Balanced:
    defaults = {
        "external": (),
        "node_port": 0,
        "everywhere": (),
        "here": (),
        "inside_local": False,
        "outside_local": False,
        "affinity_s": 0,
    }
    given = {**defaults, "protocol": "udp", "port": 53, "serving": frozenset(serving), **fields}
    return Balanced(key=f"default/{name}:", address=address, **given)


def test_the_listing_is_read_in_both_directions():
    assert parsed(LISTING) == {Flow("10.96.0.9", 53, "10.244.1.3"), Flow("172.1.0.2", 30053, "172.1.0.2")}
    assert parsed("") == set()


def of(flow: Flow, *services: Balanced) -> bool:
    return stale([flow], services, {"172.1.0.2"}, Network()) == [flow]


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        (Flow("10.96.0.9", 53, "10.244.1.3"), False),  # serves
        (Flow("10.96.0.9", 53, "10.244.1.4"), True),  # served once
        (Flow("10.96.0.9", 53, "10.96.0.9"), True),  # came before there was a rule
        (Flow("192.0.2.1", 53, "10.244.1.4"), True),  # by an external address
        (Flow("172.1.0.2", 30053, "172.1.0.2"), True),  # a node port that nobody served
        (Flow("172.1.0.2", 30053, "10.244.1.3"), False),
        (Flow("172.1.0.9", 30053, "172.1.0.9"), False),  # the same port of someone else's
        (Flow("172.1.0.2", 5353, "172.1.0.2"), False),  # the node's own server
        (Flow("10.96.0.10", 53, "10.96.0.10"), False),  # the cluster's DNS, on this node itself
        (Flow("10.96.0.77", 53, "10.244.1.3"), True),  # a Service that is gone
        (Flow("10.244.1.4", 53, "10.244.1.4"), False),  # a pod by its own address
    ],
)
def test_flows_that_no_serving_backend_answers_are_stale(flow, expected):
    assert of(flow, service(external=("192.0.2.1",), node_port=30053)) is expected


def test_without_a_backend_every_flow_is_stale_and_other_protocols_do_not_count():
    flow = Flow("10.96.0.9", 53, "10.244.1.3")
    assert of(flow, service(serving=()))
    assert not of(flow, service(), service("b", protocol="tcp", serving=()))
