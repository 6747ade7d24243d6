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
OTHER_PROXY = "service.kubernetes.io/service-proxy-name"


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
        address: the cluster address.
        external: addresses from outside: external ones and those of load balancers.
        node_port: 0 for none.
        everywhere: backends of the whole cluster: the ready ones, else those that still serve while they end.
        here: the same among this node's own backends, for the policies that ask for Local.
        inside_local: connections to the cluster address stay on their node.
        outside_local: connections from outside stay on their node and keep their source address.
        affinity_s: how long a client stays with its backend; 0 for not at all.
        serving: addresses that still serve: flows to others are stale.
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
    """Whether we translate connections to it: not headless, not a mere name, no other proxy's."""
    return (
        bool(service.spec.clusterIP)
        and service.spec.clusterIP != "None"
        and service.spec.type != "ExternalName"
        and OTHER_PROXY not in service.metadata.labels
    )


def _service(service: Service, slices: Sequence[EndpointSlice], own_name: str) -> Iterable[Balanced]:
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
    for port in spec.ports:
        endpoints = list(_endpoints(slices, port.name, own_name))
        yield Balanced(
            key=f"{service.metadata.namespace}/{service.metadata.name}:{port.name}",
            protocol=(port.protocol or "TCP").lower(),
            port=port.port,
            address=spec.clusterIP,
            external=external,
            node_port=port.nodePort if outer else 0,
            everywhere=_chosen(endpoints),
            here=_chosen([entry for entry in endpoints if entry.backend.local]),
            inside_local=spec.internalTrafficPolicy == "Local",
            outside_local=(outer or bool(external)) and spec.externalTrafficPolicy == "Local",
            affinity_s=affinity_s,
            serving=frozenset(entry.backend.address for entry in endpoints if entry.serving),
        )


@dataclass(frozen=True, slots=True)
class _Endpoint:
    backend: Backend
    ready: bool
    serving: bool
    ending: bool


def _endpoints(slices: Sequence[EndpointSlice], port_name: str, own_name: str) -> Iterable[_Endpoint]:
    for entry in slices:
        number = next((port.port for port in entry.ports if port.name == port_name), 0)
        if not number:
            continue
        for endpoint in entry.endpoints:
            conditions = endpoint.conditions
            for address in endpoint.addresses:
                yield _Endpoint(
                    Backend(address, number, endpoint.nodeName == own_name),
                    ready=not conditions.HasField("ready") or conditions.ready,
                    serving=not conditions.HasField("serving") or conditions.serving,
                    ending=conditions.terminating,
                )


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
