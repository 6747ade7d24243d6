"""From the cluster's nodes, Services and EndpointSlices to what this node's network must do. Pure.

Called by the shell whenever one of these changes. Nothing here knows nft: `ruleset` turns the
result into rules.

Source: upstream's kube-proxy (endpoint categories, traffic policies, session affinity).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from podyard.api.types import EndpointSlice, Node, Service

SERVICE_NAME = "kubernetes.io/service-name"
OTHER_PROXY = "service.kubernetes.io/service-proxy-name"
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Network:
    """The ranges of the cluster, and the address at which each node answers DNS itself."""

    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/16"
    dns: str = "10.96.0.10"


@dataclass(frozen=True, slots=True)
class Place:
    """Which node this is; zone and address are empty while they are not known."""

    name: str
    zone: str = ""
    address: str = ""


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
        address: the cluster address.
        external: addresses from outside: external ones and those of load balancers.
        node_port: 0 for none.
        everywhere: backends of the whole cluster: the ready ones (those meant for here, where all have
            hints), else those that still serve while they end.
        here: the same among this node's own backends, for the policies that ask for Local.
        inside_local: connections to the cluster address stay on their node.
        outside_local: connections from outside stay on their node and keep their source address.
        affinity_s: how long a client stays with its backend; 0 for not at all.
        serving: addresses that still serve: flows to others are stale.
        guarded: those of the external addresses, of load balancers, that only some sources may use.
        sources: these sources, as ranges and addresses.
    """

    key: str
    protocol: str
    port: int
    address: str
    external: tuple[str, ...]
    node_port: int
    everywhere: tuple[Backend, ...]
    here: tuple[Backend, ...]
    inside_local: bool
    outside_local: bool
    affinity_s: int
    serving: frozenset[str] = frozenset()
    guarded: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.address, *self.external)

    @property
    def has_outside(self) -> bool:
        """Whether anything leads here from outside."""
        return bool(self.external or self.node_port)


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
    routes, own_range, own = [], "", Place(own_name)
    for node in nodes:
        address = next((entry.address for entry in node.status.addresses if entry.type == "InternalIP"), "")
        if node.metadata.name == own_name:
            own_range = node.spec.podCIDR
            own = Place(own_name, node.metadata.labels.get(ZONE, ""), address)
            continue
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
            service, by_service.get((service.metadata.namespace, service.metadata.name), []), own
        )
    ]
    return Desired(tuple(sorted(routes)), own_range, tuple(sorted(balanced, key=lambda item: item.key)))


def is_balanced(service: Service) -> bool:
    """Whether we translate connections to it: not headless, not a mere name, no other proxy's."""
    return (
        bool(service.spec.clusterIP)
        and service.spec.clusterIP != "None"
        and service.spec.type != "ExternalName"
        and OTHER_PROXY not in service.metadata.labels
    )


def _service(service: Service, slices: Sequence[EndpointSlice], own: Place) -> Iterable[Balanced]:
    spec: Any = service.spec
    affinity_s = (
        spec.sessionAffinityConfig.clientIP.timeoutSeconds if spec.sessionAffinity == "ClientIP" else 0
    )
    # A balancer of mode Proxy delivers to the node port: its address must not be short-cut.
    ingress = [
        entry.ip for entry in service.status.loadBalancer.ingress if entry.ip and entry.ipMode != "Proxy"
    ]
    external = tuple(dict.fromkeys([*spec.externalIPs, *ingress]))
    outer = spec.type in ("NodePort", "LoadBalancer")
    sources = _sources(spec.loadBalancerSourceRanges if spec.type == "LoadBalancer" else (), ingress, own)
    for port in spec.ports:
        endpoints = list(_endpoints(slices, port.name, own))
        yield Balanced(
            key=f"{service.metadata.namespace}/{service.metadata.name}:{port.name}",
            protocol=(port.protocol or "TCP").lower(),
            port=port.port,
            address=spec.clusterIP,
            external=external,
            node_port=port.nodePort if outer else 0,
            everywhere=_chosen(_near(endpoints, own)),
            here=_chosen([entry for entry in endpoints if entry.backend.local]),
            inside_local=spec.internalTrafficPolicy == "Local",
            outside_local=(outer or bool(external)) and spec.externalTrafficPolicy == "Local",
            affinity_s=affinity_s,
            serving=frozenset(entry.backend.address for entry in endpoints if entry.serving),
            guarded=tuple(ingress) if sources else (),
            sources=sources,
        )


def _sources(ranges: Iterable[str], balancers: Sequence[str], own: Place) -> tuple[str, ...]:
    """Who may use the balancers' addresses; nobody named means everybody."""
    networks = [ipaddress.ip_network(text.strip(), strict=False) for text in ranges]
    allowed = list(ipaddress.collapse_addresses(n for n in networks if isinstance(n, ipaddress.IPv4Network)))
    if not balancers or any(network.prefixlen == 0 for network in allowed):
        return ()
    if own.address and any(ipaddress.IPv4Address(own.address) in network for network in allowed):
        # Where a balancer's address is this node's too, the node speaks to it from that very address.
        more = (ipaddress.IPv4Network(address) for address in balancers)
        allowed = list(ipaddress.collapse_addresses([*allowed, *more]))
    return tuple(str(network) for network in allowed)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    backend: Backend
    ready: bool
    serving: bool
    ending: bool
    for_nodes: frozenset[str]
    for_zones: frozenset[str]


def _endpoints(slices: Sequence[EndpointSlice], port_name: str, own: Place) -> Iterable[_Endpoint]:
    for entry in slices:
        number = next((port.port for port in entry.ports if port.name == port_name), 0)
        if not number:
            continue
        for endpoint in entry.endpoints:
            conditions = endpoint.conditions
            for address in endpoint.addresses:
                yield _Endpoint(
                    Backend(address, number, endpoint.nodeName == own.name),
                    ready=not conditions.HasField("ready") or conditions.ready,
                    serving=not conditions.HasField("serving") or conditions.serving,
                    ending=conditions.terminating,
                    for_nodes=frozenset(hint.name for hint in endpoint.hints.forNodes),
                    for_zones=frozenset(hint.name for hint in endpoint.hints.forZones),
                )


def _near(endpoints: Sequence[_Endpoint], own: Place) -> Sequence[_Endpoint]:
    """Those that hints mean for this node, else for its zone; all where some lack hints or none is meant.

    Source: upstream's kube-proxy, topology.
    """
    ready = [entry for entry in endpoints if entry.ready]
    for hints, mine in (
        ([entry.for_nodes for entry in ready], own.name),
        ([entry.for_zones for entry in ready], own.zone),
    ):
        if all(hints) and any(mine in names for names in hints):
            return [entry for entry, names in zip(ready, hints, strict=True) if mine in names]
    return endpoints


def _chosen(endpoints: Sequence[_Endpoint]) -> tuple[Backend, ...]:
    """Ready ones; when none is ready, those that still serve while they end."""
    ready = {entry.backend for entry in endpoints if entry.ready}
    return tuple(sorted(ready or {entry.backend for entry in endpoints if entry.serving and entry.ending}))


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
