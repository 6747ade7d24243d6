"""NodePorts: two pods of a node can't have the same port of it.

Source: nodeports/node_ports.go; HostPortInfo.CheckConflict.
"""

from __future__ import annotations

from scheduler.cache import Cache, NodeState
from scheduler.framework import Event, Plugin, Refusal
from scheduler.pods import ANY_ADDRESS, HostPort, Subject

_TAKEN = Refusal(("node(s) didn't have free ports for the requested pod ports",))


def _wanted(subject: Subject, cache: Cache) -> frozenset[HostPort] | None:
    return subject.facts.needs.ports or None


def ports_free(wanted: frozenset[HostPort], state: NodeState) -> Refusal | None:
    """Refuses a node on which a wanted port is taken, at the same address or at all of them."""
    for address, protocol, number in wanted:
        for taken_address, taken_protocol, taken_number in state.ports:
            if (taken_protocol, taken_number) != (protocol, number):
                continue
            if taken_address == address or ANY_ADDRESS in (taken_address, address):
                return _TAKEN
    return None


PORTS = Plugin(
    "NodePorts",
    pre_filter=_wanted,
    filter=ports_free,
    events=frozenset({Event.NODE, Event.POD_GONE}),
)
