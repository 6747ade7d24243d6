"""NodePorts: two pods of a node can't have the same port of it.

Source: nodeports/node_ports.go; HostPortInfo.CheckConflict.
"""

from __future__ import annotations

from podyard.api.types import Pod
from scheduler.cache import ANY_ADDRESS, HostPort, NodeState, needs_of
from scheduler.framework import Plugin, Refusal


def _wanted(pod: Pod) -> frozenset[HostPort]:
    return needs_of(pod).ports


def ports_free(wanted: frozenset[HostPort], state: NodeState) -> Refusal | None:
    """Refuses a node on which a wanted port is taken, at the same address or at all of them."""
    for address, protocol, number in wanted:
        for taken_address, taken_protocol, taken_number in state.ports:
            if (taken_protocol, taken_number) != (protocol, number):
                continue
            if taken_address == address or ANY_ADDRESS in (taken_address, address):
                return Refusal(("node(s) didn't have free ports for the requested pod ports",))
    return None


PORTS = Plugin("NodePorts", prepare=_wanted, filter=ports_free, events=frozenset({"node", "pod deleted"}))
