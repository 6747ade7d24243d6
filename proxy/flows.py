"""UDP flows that the kernel remembers: which of them lead to backends that are gone. Pure.

Translation is chosen once for a flow, and UDP has no end that would close one: a client that keeps its
socket would reach a removed backend as long as it speaks. So after each change of a UDP Service the
flows are compared with the backends that serve, and the others are dropped; the client's next packet
is a new flow. What the process did before does not matter, so a restart misses nothing.

Source: upstream's conntrack clean-up of stale entries.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.model import Balanced, Network


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """Flows of one kind.

    Attributes:
        address: where the client sent to.
        port: the same.
        answered_by: where the packets went.
    """

    address: str
    port: int
    answered_by: str


def parsed(listing: str) -> set[Flow]:
    """The flows of `conntrack -L -p udp`: each line has the client's direction, then that of the answers."""
    found = set()
    for line in listing.splitlines():
        pairs = [word.partition("=") for word in line.split() if "=" in word]
        targets = [value for name, _, value in pairs if name == "dst"]
        sources = [value for name, _, value in pairs if name == "src"]
        ports = [value for name, _, value in pairs if name == "dport"]
        if len(targets) == len(sources) == len(ports) == 2:
            found.add(Flow(targets[0], int(ports[0]), sources[1]))
    return found


def udp(services: Iterable[Balanced]) -> tuple[Balanced, ...]:
    """The Services whose flows matter."""
    return tuple(service for service in services if service.protocol == "udp")


def stale(
    flows: Iterable[Flow], services: Iterable[Balanced], own_addresses: Collection[str], network: Network
) -> list[Flow]:
    """Flows to a Service that no serving backend of it answers, ordered.

    Whether a backend ends or a policy would choose another does not matter: an open flow goes on, as a TCP
    connection does.

    Args:
        own_addresses: of this node, where node ports are.
    """
    by_address: dict[tuple[str, int], frozenset[str]] = {}
    by_node_port: dict[int, frozenset[str]] = {}
    for service in udp(services):
        by_address.update(((address, service.port), service.serving) for address in service.addresses)
        if service.node_port:
            by_node_port[service.node_port] = service.serving
    all_services = ipaddress.ip_network(network.services)
    found = []
    for flow in flows:
        serving = by_address.get((flow.address, flow.port))
        if serving is None and flow.address in own_addresses:
            serving = by_node_port.get(flow.port)
        if (
            serving is None
            and flow.address != network.dns
            and ipaddress.ip_address(flow.address) in all_services
        ):
            # Differs from upstream: flows of a Service that is gone end with it, since its address may
            # soon be another's.
            serving = frozenset()
        if serving is not None and flow.answered_by not in serving:
            found.append(flow)
    return sorted(found)
