"""Validation of Services, Endpoints and EndpointSlices.

Counterpart: kubernetes pkg/apis/core/validation, pkg/apis/discovery/validation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from podyard.api import names
from podyard.api.errors import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from podyard.api.types import Endpoints, EndpointSlice, IntOrString, Service
from podyard.api.validation_meta import (
    Causes,
    each,
    immutable,
    labels,
    object_meta,
    object_meta_update,
    one_of,
)

PROTOCOLS = ("TCP", "UDP", "SCTP")
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
HEADLESS = "None"
MAX_AFFINITY_S = 86400

MAX_SLICE_ENDPOINTS = 1000
MAX_SLICE_ADDRESSES = 100
MAX_SLICE_PORTS = 20000
MAX_TOPOLOGY_LABELS = 16
MAX_HINTS = 8


def service(obj: Service) -> Causes:
    """A Service as a whole; allocation comes before."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_label_problems)
    spec = obj.spec
    headless = HEADLESS in spec.clusterIPs or spec.clusterIP == HEADLESS
    if not spec.ports and not headless and spec.type != "ExternalName":
        causes.append(required("spec.ports"))
    causes += _by_type(obj, headless)
    names_seen: set[str] = set()
    for index, port in enumerate(spec.ports):
        causes += _service_port(port, f"spec.ports[{index}]", len(spec.ports) > 1, names_seen)
    causes += labels(spec.selector, "spec.selector")
    causes += _affinity(spec)
    causes += cluster_ips(obj)
    causes += _external_ips(spec)
    causes += one_of("spec.type", spec.type, SERVICE_TYPES, needed=True)
    causes += _node_ports(spec)
    causes += _unique_ports(spec)
    causes += _load_balancer(spec)
    return causes + _traffic(spec)


def _by_type(obj: Service, headless: bool) -> Causes:
    spec = obj.spec
    causes: Causes = []
    if spec.type in ("LoadBalancer", "NodePort"):
        if headless:
            detail = f"may not be set to 'None' for {spec.type} services"
            causes.append(invalid("spec.clusterIPs[0]", HEADLESS, detail))
    elif spec.type == "ExternalName":
        if spec.clusterIPs:
            causes.append(forbidden("spec.clusterIPs", "may not be set for ExternalName services"))
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if getattr(spec, name):
                causes.append(forbidden(f"spec.{name}", "may not be set for ExternalName services"))
        external = spec.externalName.removesuffix(".")
        if not external:
            causes.append(required("spec.externalName"))
        else:
            causes += each("spec.externalName", external, names.dns_subdomain_problems(external))
    return causes


def _node_ports(spec: Any) -> Causes:
    if spec.type != "ClusterIP":
        return []
    return [
        forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
        for index, port in enumerate(spec.ports)
        if port.nodePort
    ]


def _service_port(port: Any, path: str, several: bool, seen: set[str]) -> Causes:
    causes: Causes = []
    if not port.name:
        if several:
            causes.append(required(f"{path}.name"))
    else:
        causes += each(f"{path}.name", port.name, names.dns_label_problems(port.name))
        if port.name in seen:
            causes.append(duplicate(f"{path}.name", port.name))
        seen.add(port.name)
    causes += each(f"{path}.port", port.port, names.port_number_problems(port.port))
    causes += one_of(f"{path}.protocol", port.protocol, PROTOCOLS, needed=True)
    causes += port_number_or_name(port.targetPort, f"{path}.targetPort")
    if port.HasField("appProtocol"):
        causes += each(
            f"{path}.appProtocol", port.appProtocol, names.qualified_name_problems(port.appProtocol)
        )
    return causes


def port_number_or_name(value: IntOrString, path: str) -> Causes:
    """A port as a number or as the name of a container's port."""
    if value.type == 0:
        return each(path, value.intVal, names.port_number_problems(value.intVal))
    return each(path, value.strVal, names.port_name_problems(value.strVal))


def _affinity(spec: Any) -> Causes:
    causes = one_of("spec.sessionAffinity", spec.sessionAffinity, ("ClientIP", "None"), needed=True)
    path = "spec.sessionAffinityConfig"
    if spec.sessionAffinity == "None" and spec.HasField("sessionAffinityConfig"):
        causes.append(forbidden(path, "must not be set when session affinity is None"))
    if spec.sessionAffinity != "ClientIP":
        return causes
    config = spec.sessionAffinityConfig
    if not spec.HasField("sessionAffinityConfig") or not config.HasField("clientIP"):
        causes.append(required(path, "when session affinity type is ClientIP"))
    elif not config.clientIP.HasField("timeoutSeconds"):
        causes.append(required(f"{path}.clientIP.timeoutSeconds", "when session affinity type is ClientIP"))
    elif not 0 < config.clientIP.timeoutSeconds <= MAX_AFFINITY_S:
        causes.append(
            invalid(
                f"{path}.clientIP.timeoutSeconds",
                config.clientIP.timeoutSeconds,
                f"must be greater than 0 and less than {MAX_AFFINITY_S}",
            )
        )
    return causes


def _unique_ports(spec: Any) -> Causes:
    """Port and protocol of a Service are unique, node ports too."""
    causes: Causes = []
    node_ports: set[tuple[str, int]] = set()
    ports: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.ports):
        at = f"spec.ports[{index}]"
        if port.nodePort:
            if (port.protocol, port.nodePort) in node_ports:
                causes.append(duplicate(f"{at}.nodePort", port.nodePort))
            node_ports.add((port.protocol, port.nodePort))
        if (port.protocol, port.port) in ports:
            # Upstream shows its internal struct with nothing but these two set.
            key = {"Name": "", "Protocol": port.protocol, "AppProtocol": None, "Port": port.port}
            causes.append(duplicate(at, {**key, "TargetPort": 0, "NodePort": 0}))
        ports.add((port.protocol, port.port))
    return causes


def _external_ips(spec: Any) -> Causes:
    causes: Causes = []
    for index, address in enumerate(spec.externalIPs):
        path = f"spec.externalIPs[{index}]"
        problems = names.ip_problems(address)
        causes += each(path, address, problems)
        if not problems:
            causes += non_special_ip(address, path)
    return causes


def non_special_ip(address: str, path: str) -> Causes:
    """Addresses that no endpoint and no external address may be."""
    parsed = ipaddress.ip_address(address)
    causes: Causes = []
    if parsed.is_unspecified:
        causes.append(invalid(path, address, f"may not be unspecified ({address})"))
    if parsed.is_loopback:
        causes.append(invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if parsed.is_link_local:
        detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
        causes.append(invalid(path, address, detail))
    if parsed.is_multicast and parsed in ipaddress.ip_network(
        "224.0.0.0/24" if parsed.version == 4 else "ff02::/10"
    ):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        causes.append(invalid(path, address, detail))
    return causes


def _externally_accessible(spec: Any) -> bool:
    return spec.type in ("LoadBalancer", "NodePort") or (spec.type == "ClusterIP" and bool(spec.externalIPs))


def _traffic(spec: Any) -> Causes:
    causes: Causes = []
    policies = ("Cluster", "Local")
    path = "spec.externalTrafficPolicy"
    if not _externally_accessible(spec):
        if spec.externalTrafficPolicy:
            detail = "may only be set for externally-accessible services"
            causes.append(invalid(path, spec.externalTrafficPolicy, detail))
    elif not spec.externalTrafficPolicy:
        causes.append(required(path))
    else:
        causes += one_of(path, spec.externalTrafficPolicy, policies)
    if spec.type != "ExternalName":
        if not spec.HasField("internalTrafficPolicy"):
            causes.append(required("spec.internalTrafficPolicy"))
        else:
            causes += one_of("spec.internalTrafficPolicy", spec.internalTrafficPolicy, policies, needed=True)
    if spec.HasField("trafficDistribution"):
        allowed = ("PreferClose", "PreferSameZone", "PreferSameNode")
        if spec.trafficDistribution not in allowed:
            causes.append(not_supported("spec.trafficDistribution", spec.trafficDistribution, allowed))
    needs_health_check = spec.type == "LoadBalancer" and spec.externalTrafficPolicy == "Local"
    if spec.healthCheckNodePort and not needs_health_check:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        causes.append(invalid("spec.healthCheckNodePort", spec.healthCheckNodePort, detail))
    return causes


def cluster_ips(obj: Service) -> Causes:
    """Addresses and families of a Service, as far as they say something about each other."""
    spec = obj.spec
    if spec.type == "ExternalName":
        return []
    addresses = list(spec.clusterIPs)
    causes: Causes = []
    if spec.clusterIP and not addresses:
        causes.append(required("spec.clusterIPs"))
    elif addresses and addresses[0] != spec.clusterIP:
        causes.append(invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    causes += _families(spec)
    for index, address in enumerate(addresses):
        path = f"spec.clusterIPs[{index}]"
        if address == HEADLESS:
            if len(addresses) > 1:
                causes.append(invalid(path, HEADLESS, "'None' must be the first and only value"))
        else:
            wanted = spec.ipFamilies[index] if index < len(spec.ipFamilies) else ""
            causes += _cluster_ip(address, path, wanted, index)
    if len(addresses) > 2:
        causes.append(invalid("spec.clusterIPs", addresses, "may only hold up to 2 values"))
    return causes


def _families(spec: Any) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, family in enumerate(spec.ipFamilies):
        if family not in ("IPv4", "IPv6"):
            causes.append(not_supported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6")))
        elif family in seen:
            causes.append(duplicate(f"spec.ipFamilies[{index}]", family))
        seen.add(family)
    allowed = ("SingleStack", "PreferDualStack", "RequireDualStack")
    if spec.HasField("ipFamilyPolicy") and spec.ipFamilyPolicy not in allowed:
        causes.append(not_supported("spec.ipFamilyPolicy", spec.ipFamilyPolicy, allowed))
    return causes


def _cluster_ip(address: str, path: str, wanted: str, index: int) -> Causes:
    problems = names.ip_problems(address)
    if problems:
        return each(path, address, problems)
    family = "IPv6" if ":" in address else "IPv4"
    if wanted and wanted != family:
        detail = f"expected an {wanted} value as indicated by `ipFamilies[{index}]`"
        return [invalid(path, address, detail)]
    return []


def _load_balancer(spec: Any) -> Causes:
    causes: Causes = []
    balanced = spec.type == "LoadBalancer"
    only = "may only be used when `type` is 'LoadBalancer'"
    if spec.loadBalancerSourceRanges:
        # Upstream writes this path with a capital letter.
        path = "spec.LoadBalancerSourceRanges"
        if not balanced:
            causes.append(forbidden(path, only))
        for index, cidr in enumerate(spec.loadBalancerSourceRanges):
            causes += each(f"{path}[{index}]", cidr, names.cidr_problems(cidr.strip()))
    if spec.HasField("allocateLoadBalancerNodePorts") and not balanced:
        causes.append(forbidden("spec.allocateLoadBalancerNodePorts", only))
    if spec.HasField("loadBalancerClass"):
        path = "spec.loadBalancerClass"
        if not balanced:
            causes.append(forbidden(path, only))
        causes += each(path, spec.loadBalancerClass, names.qualified_name_problems(spec.loadBalancerClass))
    return causes


def service_update(new: Service, old: Service) -> Causes:
    """An update: addresses stay while the type does."""
    causes = object_meta_update(new.metadata, old.metadata)
    both_addressed = "ExternalName" not in (new.spec.type, old.spec.type)
    if both_addressed and old.spec.clusterIP and new.spec.clusterIP != old.spec.clusterIP:
        causes.append(invalid("spec.clusterIPs[0]", list(new.spec.clusterIPs), "may not change once set"))
    families = old.spec.ipFamilies, new.spec.ipFamilies
    if both_addressed and all(families) and families[0][0] != families[1][0]:
        causes.append(invalid("spec.ipFamilies[0]", families[1][0], "primary ipFamily can not be changed"))
    balanced = old.spec.type == new.spec.type == "LoadBalancer"
    if balanced and new.spec.loadBalancerClass != old.spec.loadBalancerClass:
        causes.append(
            invalid("spec.loadBalancerClass", new.spec.loadBalancerClass, "may not change once set")
        )
    return causes + service(new)


def service_status_update(new: Service, old: Service) -> Causes:
    """An update of the load balancer's addresses."""
    causes = object_meta_update(new.metadata, old.metadata)
    ingress = new.status.loadBalancer.ingress
    path = "status.loadBalancer.ingress"
    if ingress and new.spec.type != "LoadBalancer":
        causes.append(forbidden(path, "may only be used when `spec.type` is LoadBalancer"))
    for index, item in enumerate(ingress):
        at = f"{path}[{index}]"
        if item.ip:
            causes += each(f"{at}.ip", item.ip, names.ip_problems(item.ip))
            if not item.HasField("ipMode"):
                causes.append(required(f"{at}.ipMode", "must be specified when `ip` is set"))
            else:
                causes += one_of(f"{at}.ipMode", item.ipMode, ("VIP", "Proxy"), needed=True)
        elif item.HasField("ipMode"):
            causes.append(forbidden(f"{at}.ipMode", "may not be specified when `ip` is not set"))
        if item.hostname:
            causes += each(f"{at}.hostname", item.hostname, names.dns_subdomain_problems(item.hostname))
            if not names.ip_problems(item.hostname):
                causes.append(
                    invalid(f"{at}.hostname", item.hostname, "must be a DNS name, not an IP address")
                )
    return causes


def endpoints(obj: Endpoints) -> Causes:
    """Endpoints as a whole."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    for index, subset in enumerate(obj.subsets):
        path = f"subsets[{index}]"
        if not subset.addresses and not subset.notReadyAddresses:
            causes.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(getattr(subset, name)):
                causes += _endpoint_address(address, f"{path}.{name}[{at}]")
        for at, port in enumerate(subset.ports):
            where = f"{path}.ports[{at}]"
            if not port.name:
                if len(subset.ports) > 1:
                    causes.append(required(f"{where}.name"))
            else:
                causes += each(f"{where}.name", port.name, names.dns_label_problems(port.name))
            causes += each(f"{where}.port", port.port, names.port_number_problems(port.port))
            causes += one_of(f"{where}.protocol", port.protocol, PROTOCOLS, needed=True)
    return causes


def _endpoint_address(address: Any, path: str) -> Causes:
    problems = names.ip_problems(address.ip)
    causes = each(f"{path}.ip", address.ip, problems)
    if address.hostname:
        causes += each(f"{path}.hostname", address.hostname, names.dns_label_problems(address.hostname))
    if address.HasField("nodeName"):
        causes += each(f"{path}.nodeName", address.nodeName, names.dns_subdomain_problems(address.nodeName))
    return causes if problems else causes + non_special_ip(address.ip, f"{path}.ip")


def endpoints_update(new: Endpoints, old: Endpoints) -> Causes:
    """An update of Endpoints."""
    return object_meta_update(new.metadata, old.metadata) + endpoints(new)


def endpoint_slice(obj: EndpointSlice) -> Causes:
    """An EndpointSlice as a whole."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    families = ("IPv4", "IPv6", "FQDN")
    if not obj.addressType:
        causes.append(required("addressType"))
    elif obj.addressType not in families:
        causes.append(not_supported("addressType", obj.addressType, families))
    if len(obj.endpoints) > MAX_SLICE_ENDPOINTS:
        causes.append(too_many("endpoints", len(obj.endpoints), MAX_SLICE_ENDPOINTS))
    else:
        for index, endpoint in enumerate(obj.endpoints):
            causes += _slice_endpoint(endpoint, f"endpoints[{index}]", obj.addressType)
    return causes + _slice_ports(obj.ports)


def _slice_endpoint(endpoint: Any, path: str, address_type: str) -> Causes:
    causes: Causes = []
    at = f"{path}.addresses"
    if not endpoint.addresses:
        causes.append(required(at, "must contain at least 1 address"))
    elif len(endpoint.addresses) > MAX_SLICE_ADDRESSES:
        causes.append(too_many(at, len(endpoint.addresses), MAX_SLICE_ADDRESSES))
    for index, address in enumerate(endpoint.addresses):
        causes += _slice_address(address, f"{at}[{index}]", address_type)
    if endpoint.HasField("nodeName"):
        causes += each(f"{path}.nodeName", endpoint.nodeName, names.dns_subdomain_problems(endpoint.nodeName))
    topology = endpoint.deprecatedTopology
    if len(topology) > MAX_TOPOLOGY_LABELS:
        causes.append(too_many(f"{path}.deprecatedTopology", len(topology), MAX_TOPOLOGY_LABELS))
    causes += labels(topology, f"{path}.deprecatedTopology")
    if endpoint.HasField("hostname"):
        causes += each(f"{path}.hostname", endpoint.hostname, names.dns_label_problems(endpoint.hostname))
    if endpoint.HasField("hints"):
        causes += _hints(endpoint.hints.forZones, f"{path}.hints.forZones", names.dns_label_problems)
        causes += _hints(endpoint.hints.forNodes, f"{path}.hints.forNodes", names.dns_subdomain_problems)
    return causes


def _slice_address(address: str, path: str, address_type: str) -> Causes:
    if address_type == "FQDN":
        return each(path, address, names.dns_subdomain_problems(address))
    if address_type not in ("IPv4", "IPv6"):
        return []
    problems = names.ip_problems(address)
    if problems:
        return each(path, address, problems)
    version = ipaddress.ip_address(address).version
    if f"IPv{version}" != address_type:
        return [invalid(path, address, f"must be an {address_type} address")]
    return non_special_ip(address, path)


def _hints(hints: Sequence[Any], path: str, problems_of: Any) -> Causes:
    causes: Causes = []
    if len(hints) > MAX_HINTS:
        return [too_many(path, len(hints), MAX_HINTS)]
    seen: set[str] = set()
    for index, hint in enumerate(hints):
        at = f"{path}[{index}].name"
        if hint.name in seen:
            causes.append(duplicate(at, hint.name))
        seen.add(hint.name)
        causes += each(at, hint.name, problems_of(hint.name))
    return causes


def _slice_ports(ports: Sequence[Any]) -> Causes:
    if len(ports) > MAX_SLICE_PORTS:
        return [too_many("ports", len(ports), MAX_SLICE_PORTS)]
    causes: Causes = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path = f"ports[{index}]"
        if port.name:
            causes += each(f"{path}.name", port.name, names.dns_label_problems(port.name))
        if port.name in seen:
            causes.append(duplicate(f"{path}.name", port.name))
        seen.add(port.name)
        causes += one_of(f"{path}.protocol", port.protocol, PROTOCOLS, needed=True)
        if port.HasField("appProtocol"):
            problems = names.qualified_name_problems(port.appProtocol)
            causes += each(f"{path}.appProtocol", port.appProtocol, problems)
    return causes


def endpoint_slice_update(new: EndpointSlice, old: EndpointSlice) -> Causes:
    """An update: the address type stays."""
    causes = object_meta_update(new.metadata, old.metadata) + endpoint_slice(new)
    return causes + immutable("addressType", new.addressType, old.addressType)
