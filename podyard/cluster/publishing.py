"""Ports of nodes that are published on the host: how a user writes them, and whether they fit. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from podyard.cluster.enginehost import LOOPBACK
from podyard.cluster.errors import SpecError
from podyard.cluster.spec import Port, Publication, Role, container_name
from podyard.cluster.wording import counted

FORM = "[ADDRESS:]HOSTPORT:PORT[/udp][@NODE]"
NOTHING = "none"
_HINT = f"{FORM}, such as 8080:30080 or 0.0.0.0:5353:30053/udp@worker-2; {NOTHING} takes all away"
_MAX_PORT = 65535
_WRITTEN = re.compile(
    r"(?:(?P<address>\[[0-9a-fA-F:.]+\]|[0-9]+(?:\.[0-9]+){3}):)?"
    r"(?P<outside>[0-9]{1,5}):(?P<inside>[0-9]{1,5})"
    r"(?:/(?P<protocol>tcp|udp))?(?:@(?:worker-)?(?P<node>[0-9]{1,3}))?"
)


def parse(words: Sequence[str]) -> tuple[Publication, ...]:
    """What the options `--publish` say, one after another.

    Raises:
        SpecError: one is not of the form, or two want the same port of one address of the host.
    """
    if list(words) == [NOTHING]:
        return ()
    found = tuple(_parse(text) for text in words)
    for number, each in enumerate(found):
        before = clash(each.port, [one.port for one in found[:number]])
        if before is not None:
            where = f"{each.port}" if before == each.port else f"{before} and {each.port}"
            raise SpecError(f"two ports are to be published at {where}", hint="leave one of them out")
    return found


def address_of(text: str) -> str | None:
    """An address to listen on in the one way to write it; None where it is none.

    An IPv4 address may stand in an IPv6 one, and means itself.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return None  # the engine knows no zones
        return str(address.ipv4_mapped or address)
    return str(address)


def clash(port: Port, others: Iterable[Port]) -> Port | None:
    """The first of other ports that cannot be published beside this one; None where all can.

    Both are at addresses as `address_of` gives them. An unspecified one is all of its family's.
    """
    return next((other for other in others if _overlap(port, other)), None)


def _overlap(one: Port, other: Port) -> bool:
    if (one.outside, one.protocol) != (other.outside, other.protocol):
        return False
    first, second = (ipaddress.ip_address(port.address) for port in (one, other))
    everywhere = first.is_unspecified or second.is_unspecified
    return first == second or (first.version == second.version and everywhere)


def _parse(text: str) -> Publication:
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise SpecError(f"{text!r} does not say what to publish where", hint=_HINT)
    inside, outside = int(match["inside"]), int(match["outside"])
    if not (0 < inside <= _MAX_PORT and 0 < outside <= _MAX_PORT):
        raise SpecError(f"{text!r}: ports are from 1 to {_MAX_PORT}", hint=_HINT)
    address = address_of((match["address"] or LOOPBACK).strip("[]"))
    if address is None:
        raise SpecError(f"{text!r}: {match['address']} is no address", hint=_HINT)
    node = int(match["node"] or 1)
    if not node:
        raise SpecError(f"{text!r}: nodes are counted from 1", hint=_HINT)
    return Publication(node, Port(inside, outside, match["protocol"] or "tcp", address))


def require_nodes(publish: Sequence[Publication], nodes: int) -> None:
    """Raises:
    SpecError: a port of a node that there is not.
    """
    for each in publish:
        if each.node > nodes:
            raise SpecError(
                f"a port of node {each.node} is to be published, "
                f"and the cluster has {counted(nodes, 'node')}",
                hint=f"choose a node from 1 to {nodes}, or more nodes: --nodes {each.node}"
                if nodes
                else f"give it nodes: --nodes {each.node}",
            )


def describe(cluster: str, each: Publication) -> str:
    """One line: where it is, and whose it is."""
    node = container_name(cluster, Role.WORKER, each.node)
    return f"{each.port} leads to port {each.port.inside} of {node}"
