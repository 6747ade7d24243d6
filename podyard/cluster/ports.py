"""Subnets and ports that are free on this host.

What is chosen is kept in `cluster.yaml`: the engine's own choice would change at every start.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import zlib
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

from podyard.cluster.enginehost import LOOPBACK
from podyard.cluster.errors import ClusterError
from podyard.cluster.plan import free_subnets
from podyard.cluster.spec import (
    DEFAULT_NAME,
    NETWORK_PREFIX,
    POD_NETWORK,
    REGISTRY_NAME,
    SERVICE_NETWORK,
    ClusterSpec,
    HostPorts,
    Port,
    Role,
    container_name,
)

# Private, and seldom used by anything but container engines.
_SUBNET_POOL = IPv4Network("172.28.0.0/14")
# Below the ports that the kernel hands to outgoing connections, which come and go.
_FIRST_PORT, _LAST_PORT = 26443, 29999
# The default cluster's first API server gets the first ports: they are easy to remember.
FIRST_CHOICE = container_name(DEFAULT_NAME, Role.APISERVER, 1)
_ROUTES = Path("/proc/net/route")


def candidate_subnets(engine_subnets: Sequence[str], *, beginning: str = DEFAULT_NAME) -> list[str]:
    """Free subnets for a cluster's network, in order of preference.

    Args:
        engine_subnets: those of the engine's networks. This host's routes count as taken too, so that a
            cluster never hides a network that the host reaches, and so do the cluster's own pod and Service
            ranges.
        beginning: the cluster's name; other names begin to look elsewhere, as with ports.

    Raises:
        ClusterError: none is left.
    """
    taken = [*engine_subnets, *_host_routes(), POD_NETWORK, SERVICE_NETWORK]
    pool = [str(subnet) for subnet in _SUBNET_POOL.subnets(new_prefix=NETWORK_PREFIX)]
    first = 0 if beginning == DEFAULT_NAME else zlib.crc32(beginning.encode()) % len(pool)
    found = free_subnets([*pool[first:], *pool[:first]], taken)
    if not found:
        raise ClusterError(
            f"no /{NETWORK_PREFIX} is free in {_SUBNET_POOL}",
            hint="remove networks that nothing uses: docker network prune",
        )
    return found


def choose_ports(
    spec: ClusterSpec,
    kept: Mapping[str, HostPorts],
    busy_is_ours: Container[str],
    *,
    host: str = LOOPBACK,
    lost: Set[int] = frozenset(),
) -> dict[str, HostPorts]:
    """Ports of the engine's host for each API server.

    Args:
        kept: chosen before; they stay, unless something else has taken one of them meanwhile.
        busy_is_ours: names of the running containers, whose ports are taken by themselves.
        host: where the engine's ports are. Of another machine's only the engine knows which are free.
        lost: those that the engine would not give.
    """
    chosen: dict[str, HostPorts] = {}
    promised = {each.port.outside for each in spec.publish}
    used = {port for ports in kept.values() for _, port in ports.pairs()} | promised | lost
    for name in spec.names(Role.APISERVER):
        ports = kept.get(name)
        if ports is not None and name not in busy_is_ours:
            numbers = {port for _, port in ports.pairs()}
            if numbers & (promised | lost) or not all(_may_be_free(port, host) for port in numbers):
                ports = None
        if ports is None:
            rest, grpc, grpc_token = (_next_port(used, name, host) for _ in range(3))
            ports = HostPorts(rest, grpc, grpc_token)
        chosen[name] = replace(ports, host=host)
    return chosen


def registry_port(kept: int, *, taken: Set[int], host: str = LOOPBACK, lost: Set[int] = frozenset()) -> int:
    """The port of the engine's host for the registry.

    Args:
        kept: its port as it is there; 0 for none. It stays, unless the engine would not give it.
        taken: promised to others.
        host: as for `choose_ports`.
        lost: those that the engine would not give.
    """
    if kept and kept not in lost:
        return kept
    return free_port(taken | lost, beginning=REGISTRY_NAME, host=host)


def _next_port(used: set[int], name: str, host: str) -> int:
    port = free_port(used, beginning=name, host=host)
    used.add(port)
    return port


def _may_be_free(port: int, host: str) -> bool:
    """Of another machine's ports nothing is known here."""
    return host != LOOPBACK or port_is_free(port)


def free_port(avoid: Container[int], *, beginning: str, host: str = LOOPBACK) -> int:
    """A port on which nothing listens, as far as may be seen from here.

    Args:
        avoid: not these, which may be promised already.
        beginning: a name that says where to begin to look, so that two clusters that come up at the same
            moment seldom look at the same ports.
        host: where the engine's ports are.

    Raises:
        ClusterError: there is none.
    """
    count = _LAST_PORT - _FIRST_PORT + 1
    first = 0 if beginning == FIRST_CHOICE else zlib.crc32(beginning.encode()) % count
    for port in (_FIRST_PORT + (first + index) % count for index in range(count)):
        if port not in avoid and _may_be_free(port, host):
            return port
    raise ClusterError(
        f"every port of 127.0.0.1 from {_FIRST_PORT} to {_LAST_PORT} is taken",
        hint=f"see: ss -ltn ({REGISTRY_NAME} and every cluster need some)",
    )


# An address with a port, as engines write it: an IPv6 one in brackets or without. What follows another colon
# is the container's side of a mapping.
_PLACE = re.compile(
    r"(?<![0-9a-fA-F:.\]])"
    r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9a-fA-F:]*\]|(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4})"
    r":(?P<port>[0-9]{1,5})(?![0-9a-fA-F.])"
)


def named_in(words: str) -> set[int]:
    """The ports of the host that the engine complains about."""
    return {int(match["port"]) for match in _PLACE.finditer(words) if int(match["port"])}


def port_is_free(port: int) -> bool:
    """True when 127.0.0.1:port can be bound."""
    return not taken(Port(0, port))


def taken(port: Port) -> str:
    """Why a port of this host can't be published; empty when it can, as far as may be seen from here."""
    family = socket.AF_INET6 if ":" in port.address else socket.AF_INET
    kind = socket.SOCK_DGRAM if port.protocol == "udp" else socket.SOCK_STREAM
    try:
        with socket.socket(family, kind) as probe:
            if family is socket.AF_INET6:
                # As the engine does: the same port of IPv4 is another matter.
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if kind is socket.SOCK_STREAM:
                # As the engine does: a connection that lingers from before does not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((port.address, port.outside))
    except PermissionError:
        return ""  # a low port, which the engine may have
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _host_routes() -> list[str]:
    """Destinations in this host's routing table, without the default; empty where there is no such file."""
    try:
        rows = _ROUTES.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []
    found = []
    for row in rows:
        columns = row.split()
        destination, mask = (_address(columns[index]) for index in (1, 7))
        if mask != "0.0.0.0":
            found.append(f"{destination}/{mask}")
    return found


def _address(little_endian_hex: str) -> str:
    return str(ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(little_endian_hex), "little")))
