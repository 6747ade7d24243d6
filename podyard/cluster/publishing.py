"""Ports of nodes that are published on the host: how a user writes them, and whether they fit. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from podyard.cluster.enginehost import LOOPBACK
from podyard.cluster.errors import SpecError
from podyard.cluster.spec import Port, Publication, Role, container_name

FORM = "[ADDRESS:]HOSTPORT:PORT[/udp][@NODE]"
NOTHING = "none"
_HINT = f"{FORM}, such as 8080:30080 or 0.0.0.0:5353:30053/udp@2; {NOTHING} takes all away"
_MAX_PORT = 65535
_WRITTEN = re.compile(
    r"(?:(?P<address>\[[0-9a-fA-F:]+\]|[0-9]+(?:\.[0-9]+){3}):)?"
    r"(?P<outside>[0-9]{1,5}):(?P<inside>[0-9]{1,5})"
    r"(?:/(?P<protocol>tcp|udp))?(?:@(?P<node>[0-9]{1,3}))?"
)


def parse(words: Sequence[str]) -> tuple[Publication, ...]:
    """What the options `--publish` say, one after another.

    Raises:
        SpecError: one is not of the form, or two want the same port of the host.
    """
    if list(words) == [NOTHING]:
        return ()
    found = tuple(_parse(text) for text in words)
    places = [str(each.port) for each in found]
    for place in places:
        if places.count(place) > 1:
            raise SpecError(f"two ports are to be published at {place}", hint="leave one of them out")
    return found


def _parse(text: str) -> Publication:
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise SpecError(f"{text!r} does not say what to publish where", hint=_HINT)
    inside, outside = int(match["inside"]), int(match["outside"])
    if not (0 < inside <= _MAX_PORT and 0 < outside <= _MAX_PORT):
        raise SpecError(f"{text!r}: ports are from 1 to {_MAX_PORT}", hint=_HINT)
    address = (match["address"] or LOOPBACK).strip("[]")
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
                f"a port of node {each.node} is to be published, and the cluster has {nodes} nodes",
                hint=f"choose a node from 1 to {nodes}, or more nodes: --nodes {each.node}"
                if nodes
                else f"give it nodes: --nodes {each.node}",
            )


def describe(cluster: str, each: Publication) -> str:
    """One line: where it is, and whose it is."""
    node = container_name(cluster, Role.WORKER, each.node)
    return f"{each.port} leads to port {each.port.inside} of {node}"
