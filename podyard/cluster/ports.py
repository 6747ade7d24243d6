"""Subnets and ports that are free on this host.

What is chosen is kept in `cluster.yaml`: the engine's own choice would change at every start.
"""

from __future__ import annotations

import ipaddress
import socket
import zlib
from collections.abc import Container, Sequence
from ipaddress import IPv4Network
from pathlib import Path

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
    spec: ClusterSpec, kept: dict[str, HostPorts], busy_is_ours: Container[str]
) -> dict[str, HostPorts]:
    """Ports of 127.0.0.1 for each API server.

    Args:
        kept: chosen before; they stay, unless something else has taken one of them meanwhile.
        busy_is_ours: names of the running containers, whose ports are taken by themselves.
    """
    chosen: dict[str, HostPorts] = {}
    used = {port for ports in kept.values() for _, port in ports.pairs()}
    for name in spec.names(Role.APISERVER):
        ports = kept.get(name)
        if ports is None or (
            name not in busy_is_ours and not all(port_is_free(port) for _, port in ports.pairs())
        ):
            free = []
            for _ in range(3):
                free.append(free_port(used, beginning=name))
                used.add(free[-1])
            ports = HostPorts(*free)
        chosen[name] = ports
    return chosen


def free_port(avoid: Container[int], *, beginning: str) -> int:
    """A port of 127.0.0.1 on which nothing listens.

    Args:
        avoid: not these, which may be promised already.
        beginning: a name that says where to begin to look, so that two clusters that come up at the same
            moment seldom look at the same ports.

    Raises:
        ClusterError: there is none.
    """
    count = _LAST_PORT - _FIRST_PORT + 1
    first = 0 if beginning == FIRST_CHOICE else zlib.crc32(beginning.encode()) % count
    for port in (_FIRST_PORT + (first + index) % count for index in range(count)):
        if port not in avoid and port_is_free(port):
            return port
    raise ClusterError(
        f"every port of 127.0.0.1 from {_FIRST_PORT} to {_LAST_PORT} is taken",
        hint=f"see: ss -ltn ({REGISTRY_NAME} and every cluster need some)",
    )


def port_is_free(port: int) -> bool:
    """True when 127.0.0.1:port can be bound."""
    with socket.socket() as probe:
        # As the engine does: a connection that lingers from before does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


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
