"""From the cluster's nodes, Services and EndpointSlices to what this node's network must do. Pure.

Called by the shell whenever one of these changes. Nothing here knows nft: `ruleset` turns the
result into rules.

Source: upstream's kube-proxy (endpoint categories, traffic policies, session affinity).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from podyard.api.types import EndpointSlice, Node, Service

SERVICE_NAME = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Network:
    """The ranges of the cluster, and the address at which each node answers DNS itself."""

    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/16"
    dns: str = "10.96.0.10"


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """Where a connection may go."""

    address: str
    port: int
    local: bool


@dataclass(frozen=True, slots=True)
class Balanced:
    """One port of one Service.

    Attributes:
        key: namespace/name:port, unique.
        addresses: the cluster address and the external ones.
        node_port: 0 for none.
        inside: backends for connections to the addresses from inside the cluster.
        outside: backends for connections from outside, to the node port too.
        outside_local: connections from outside keep their source address.
        affinity_s: how long a client stays with its backend; 0 for not at all.
    """

    key: str
    protocol: str
    port: int
    addresses: tuple[str, ...]
    node_port: int
    inside: tuple[Backend, ...]
    outside: tuple[Backend, ...]
    outside_local: bool
    affinity_s: int
    # There are backends, but the policy lets none of them serve here: silence rather than refusal.
    inside_elsewhere: bool = False
    outside_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Desired:
    """What should be.

    Attributes:
        routes: pod range of another node -> that node's address.
        own_range: this node's pod range; empty before it has one.
        services: every port of every Service that is reached by address.
    """

    routes: tuple[tuple[str, str], ...]
    own_range: str
    services: tuple[Balanced, ...] = field(default=())


def desired(
    nodes: Iterable[Node],
    own_name: str,
    services: Iterable[Service] = (),
    slices: Iterable[EndpointSlice] = (),
    network: Network = Network(),
) -> Desired:
    """Routes to the other nodes, and the Services with their backends."""
    routes, own_range = [], ""
    for node in nodes:
        if node.metadata.name == own_name:
            own_range = node.spec.podCIDR
            continue
        address = next((entry.address for entry in node.status.addresses if entry.type == "InternalIP"), "")
        if node.spec.podCIDR and address:
            routes.append((node.spec.podCIDR, address))
    by_service: dict[tuple[str, str], list[EndpointSlice]] = {}
    for entry in slices:
        name = entry.metadata.labels.get(SERVICE_NAME, "")
        if name and entry.addressType == "IPv4":
            by_service.setdefault((entry.metadata.namespace, name), []).append(entry)
    balanced = [
        made
        for service in services
        if is_balanced(service) and service.spec.clusterIP != network.dns
        for made in _service(
            service, by_service.get((service.metadata.namespace, service.metadata.name), []), own_name
        )
    ]
    return Desired(tuple(sorted(routes)), own_range, tuple(sorted(balanced, key=lambda item: item.key)))


def is_balanced(service: Service) -> bool:
    """Whether connections to the Service are translated: not headless, not a mere name."""
    return (
        bool(service.spec.clusterIP)
        and service.spec.clusterIP != "None"
        and service.spec.type != "ExternalName"
    )


def _service(service: Service, slices: Sequence[EndpointSlice], own_name: str) -> Iterable[Balanced]:
    spec: Any = service.spec
    affinity_s = (
        spec.sessionAffinityConfig.clientIP.timeoutSeconds if spec.sessionAffinity == "ClientIP" else 0
    )
    ingress = [entry.ip for entry in service.status.loadBalancer.ingress if entry.ip]
    addresses = tuple(dict.fromkeys([spec.clusterIP, *spec.externalIPs, *ingress]))
    for port in spec.ports:
        every = _backends(slices, port.name, own_name)
        inside = _by_policy(every, spec.internalTrafficPolicy)
        outside = _by_policy(every, spec.externalTrafficPolicy)
        yield Balanced(
            key=f"{service.metadata.namespace}/{service.metadata.name}:{port.name}",
            protocol=(port.protocol or "TCP").lower(),
            port=port.port,
            addresses=addresses,
            node_port=port.nodePort if spec.type in ("NodePort", "LoadBalancer") else 0,
            inside=inside,
            outside=outside,
            outside_local=spec.externalTrafficPolicy == "Local",
            affinity_s=affinity_s,
            inside_elsewhere=bool(every) and not inside,
            outside_elsewhere=bool(every) and not outside,
        )


def _backends(slices: Sequence[EndpointSlice], port_name: str, own_name: str) -> tuple[Backend, ...]:
    """Ready endpoints; when none is ready, those that still serve while they end."""
    ready: set[Backend] = set()
    ending: set[Backend] = set()
    for entry in slices:
        number = next((port.port for port in entry.ports if port.name == port_name), 0)
        if not number:
            continue
        for endpoint in entry.endpoints:
            conditions = endpoint.conditions
            local = endpoint.nodeName == own_name
            found = {Backend(address, number, local) for address in endpoint.addresses}
            if not conditions.HasField("ready") or conditions.ready:
                ready |= found
            elif conditions.serving and conditions.terminating:
                ending |= found
    return tuple(sorted(ready or ending))


def _by_policy(every: tuple[Backend, ...], policy: str) -> tuple[Backend, ...]:
    return tuple(backend for backend in every if backend.local) if policy == "Local" else every


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


def stale_flows(old: Desired | None, new: Desired) -> list[tuple[str, str]]:
    """(Service address, backend address) of UDP flows whose backend is gone: the kernel would keep them."""
    if old is None:
        return []
    now = {item.key: item for item in new.services}
    found: set[tuple[str, str]] = set()
    for item in old.services:
        if item.protocol != "udp":
            continue
        after = now.get(item.key)
        gone = {b.address for b in (*item.inside, *item.outside)}
        if after is not None:
            gone -= {b.address for b in (*after.inside, *after.outside)}
        found.update((address, backend) for address in item.addresses for backend in gone)
    return sorted(found)
