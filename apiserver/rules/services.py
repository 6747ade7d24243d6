"""Services: address families, fields that go with the type, and cluster addresses.

Counterpart: kubernetes pkg/registry/core/service.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator

from podyard.api.errors import invalid
from podyard.api.types import Service, StatusCause, core_v1
from podyard.api.validation_service import cluster_ips

HEADLESS = "None"
EXTERNAL_NAME = "ExternalName"
_SINGLE, _DUAL = "SingleStack", "RequireDualStack"
_FAMILY, _OTHER_FAMILY = "IPv4", "IPv6"


def prepare_create(service: Service) -> None:
    """No status yet."""
    service.status.CopyFrom(core_v1.ServiceStatus())
    service.status.loadBalancer.SetInParent()
    _normalize_cluster_ips(service)


def prepare_update(new: Service, old: Service) -> None:
    """Status is not the client's; allocated values left out are kept."""
    new.status.CopyFrom(old.status)
    _follow_cluster_ip(new, old)
    _keep_allocated(new, old)
    _normalize_cluster_ips(new)
    _drop_fields_of_other_types(new, old)


def prepare_status(new: Service, old: Service) -> None:
    """Only metadata and status change."""
    new.spec.CopyFrom(old.spec)


def _needs_cluster_ip(service: Service) -> bool:
    return service.spec.type != EXTERNAL_NAME


def _normalize_cluster_ips(service: Service) -> None:
    """`clusterIPs[0]` and `clusterIP` are one value; old clients know only the latter."""
    spec = service.spec
    if spec.clusterIP and not spec.clusterIPs:
        spec.clusterIPs.append(spec.clusterIP)


def _follow_cluster_ip(new: Service, old: Service) -> None:
    """A client that changed only `clusterIP` means `clusterIPs` too."""
    spec = new.spec
    if spec.clusterIP == old.spec.clusterIP or list(spec.clusterIPs) != list(old.spec.clusterIPs):
        return
    if not spec.clusterIP:
        del spec.clusterIPs[:]
    elif spec.clusterIPs:
        spec.clusterIPs[0] = spec.clusterIP


def settle_families(service: Service, old: Service | None) -> list[StatusCause]:
    """Fills in policy and address families, as far as a cluster of IPv4 alone can have them.

    Args:
        service: changed.
        old: the Service before, of an update.

    Returns:
        What this cluster does not have, or what does not fit together.

    Source: registry/core/service/storage alloc.go, initIPFamilyFields.
    """
    spec = service.spec
    if not _needs_cluster_ip(service):
        return []
    free = spec.clusterIP == HEADLESS and not spec.selector
    if not spec.HasField("ipFamilyPolicy"):
        before = old.spec.ipFamilyPolicy if old is not None else ""
        spec.ipFamilyPolicy = before or (_DUAL if free else _SINGLE)
    causes = cluster_ips(service) or [*_reduced(service, old), *_policy_fits(spec), *_infer_families(spec)]
    if causes:
        return causes
    if free:
        # Whoever fills in the endpoints may use both families, whatever the cluster has.
        if not spec.ipFamilies:
            spec.ipFamilies.append(_FAMILY)
        if len(spec.ipFamilies) < 2 and spec.ipFamilyPolicy != _SINGLE:
            spec.ipFamilies.append(_OTHER_FAMILY if spec.ipFamilies[0] == _FAMILY else _FAMILY)
        return []
    if spec.ipFamilyPolicy == _DUAL:
        detail = "this cluster is not configured for dual-stack services"
        causes.append(invalid("spec.ipFamilyPolicy", spec.ipFamilyPolicy, detail))
    for index, family in enumerate(spec.ipFamilies):
        if family != _FAMILY:
            causes.append(invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    if not causes and not spec.ipFamilies:
        spec.ipFamilies.append(_FAMILY)
    return causes


def _reduced(service: Service, old: Service | None) -> list[StatusCause]:
    """A second family goes only with the policy; with the policy it goes by itself."""
    spec = service.spec
    if old is None or not _needs_cluster_ip(old):
        return []
    if spec.ipFamilyPolicy == _SINGLE:
        if list(spec.ipFamilies) == list(old.spec.ipFamilies):
            del spec.ipFamilies[1:]
        return []
    if len(old.spec.ipFamilies) < 2 or not spec.ipFamilies or len(spec.ipFamilies) > 1:
        return []
    detail = "must be 'SingleStack' to release the secondary IP family"
    return [invalid("spec.ipFamilyPolicy", spec.ipFamilyPolicy, detail)]


def _policy_fits(spec: core_v1.ServiceSpec) -> list[StatusCause]:
    if spec.ipFamilyPolicy != _SINGLE:
        return []
    several = ((spec.clusterIPs, "cluster IPs"), (spec.ipFamilies, "IP families"))
    start = "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
    return [
        invalid("spec.ipFamilyPolicy", spec.ipFamilyPolicy, f"{start} {what} are specified")
        for values, what in several
        if len(values) == 2
    ]


def _infer_families(spec: core_v1.ServiceSpec) -> list[StatusCause]:
    """Addresses say their family where the client has not."""
    causes: list[StatusCause] = []
    for index, address in enumerate(spec.clusterIPs):
        if address == HEADLESS:
            break
        if index < len(spec.ipFamilies):
            continue
        family = _OTHER_FAMILY if ":" in address else _FAMILY
        if family == _FAMILY:
            spec.ipFamilies.append(family)
        else:
            detail = f"{family} is not configured on this cluster"
            causes.append(invalid(f"spec.clusterIPs[{index}]", list(spec.clusterIPs), detail))
    return causes


def _keep_allocated(new: Service, old: Service) -> None:
    """An update that does not repeat addresses and ports keeps them."""
    if _needs_cluster_ip(old) and _needs_cluster_ip(new):
        if not new.spec.clusterIP and not new.spec.clusterIPs:
            new.spec.clusterIP = old.spec.clusterIP
            new.spec.clusterIPs.extend(old.spec.clusterIPs)
        elif new.spec.clusterIP == old.spec.clusterIP and not new.spec.clusterIPs:
            new.spec.clusterIPs.extend(old.spec.clusterIPs)
    node_ports = ("NodePort", "LoadBalancer")
    if old.spec.type in node_ports and new.spec.type in node_ports:
        known = {(port.protocol, port.port): port.nodePort for port in old.spec.ports}
        for port in new.spec.ports:
            port.nodePort = port.nodePort or known.get((port.protocol, port.port), 0)
    if not new.spec.healthCheckNodePort:
        new.spec.healthCheckNodePort = old.spec.healthCheckNodePort


def _drop_fields_of_other_types(new: Service, old: Service) -> None:
    """After a change of type, fields that the client merely repeated go with the old type."""
    spec = new.spec
    if old.spec.type == spec.type:
        return
    if spec.type == EXTERNAL_NAME and spec.clusterIP == old.spec.clusterIP:
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.ClearField(name)
    if old.spec.type in ("NodePort", "LoadBalancer") and spec.type in ("ClusterIP", EXTERNAL_NAME):
        before = {(port.name, port.nodePort) for port in old.spec.ports}
        for port in spec.ports:
            if (port.name, port.nodePort) in before:
                port.nodePort = 0
        if spec.healthCheckNodePort == old.spec.healthCheckNodePort:
            spec.healthCheckNodePort = 0
        if not spec.externalIPs and spec.externalTrafficPolicy == old.spec.externalTrafficPolicy:
            spec.externalTrafficPolicy = ""
    if old.spec.type == "LoadBalancer":
        if spec.allocateLoadBalancerNodePorts == old.spec.allocateLoadBalancerNodePorts:
            spec.ClearField("allocateLoadBalancerNodePorts")
        if spec.loadBalancerClass == old.spec.loadBalancerClass:
            spec.ClearField("loadBalancerClass")


def assign_cluster_ip(service: Service, cidr: str, taken: Collection[str], start: int) -> bool:
    """Gives the Service a free address of the range when it needs one and names none.

    Args:
        service: changed.
        cidr: the Service range, IPv4.
        taken: addresses of other Services.
        start: any number; the search begins there, so that concurrent requests rarely meet.

    Returns:
        False when the range is exhausted.
    """
    spec = service.spec
    if not _needs_cluster_ip(service) or spec.clusterIP:
        return True
    for address in _candidates(ipaddress.ip_network(cidr), start):
        if address not in taken:
            spec.clusterIP = address
            del spec.clusterIPs[:]
            spec.clusterIPs.append(address)
            return True
    return False


NODE_PORTS = range(30000, 32768)
# Source: KEP-3668.
_BY_HAND = 86
_PORT_TYPES = ("NodePort", "LoadBalancer")


def node_ports(service: Service) -> set[int]:
    """Ports of the nodes that a Service holds."""
    found = {port.nodePort for port in service.spec.ports} | {service.spec.healthCheckNodePort}
    return found - {0}


def assign_node_ports(service: Service, taken: Collection[int], start: int) -> list[StatusCause]:
    """Gives the ports of a Service of an outside type free node ports, and checks those it names.

    Args:
        service: changed.
        taken: ports that other Services hold.
        start: any number; the search begins there.

    Returns:
        What is wrong with the named ones.
    """
    spec = service.spec
    if spec.type not in _PORT_TYPES:
        return []
    causes: list[StatusCause] = []
    own: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.ports):
        if not port.nodePort:
            continue
        path = f"spec.ports[{index}].nodePort"
        if port.nodePort not in NODE_PORTS:
            detail = (
                "provided port is not in the valid range. The range of valid ports is "
                f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
            )
            causes.append(invalid(path, port.nodePort, detail))
        elif port.nodePort in taken:
            causes.append(invalid(path, port.nodePort, "provided port is already allocated"))
        own.add((port.protocol, port.nodePort))
    if causes or (spec.type == "LoadBalancer" and not spec.allocateLoadBalancerNodePorts):
        return causes
    used = {*taken, *(number for _, number in own)}
    for port in spec.ports:
        if not port.nodePort:
            port.nodePort = _free_port(used, start)
            used.add(port.nodePort)
    if spec.type == "LoadBalancer" and spec.externalTrafficPolicy == "Local" and not spec.healthCheckNodePort:
        spec.healthCheckNodePort = _free_port(used, start)
    return []


def _free_port(used: Collection[int], start: int) -> int:
    """A free port, 0 for none; the lower part of the range is left to ports chosen by hand."""
    for part in (NODE_PORTS[_BY_HAND:], NODE_PORTS[:_BY_HAND]):
        for step in range(len(part)):
            number = part[(start + step) % len(part)]
            if number not in used:
                return number
    return 0


def _candidates(network: ipaddress.IPv4Network | ipaddress.IPv6Network, start: int) -> Iterator[str]:
    """The upper part of the range first: the lower one is left to addresses chosen by hand.

    Source: KEP-3070.
    """
    size = min(network.num_addresses, 65536)
    first, last = 1, size - 2
    reserved = min(max(16, size // 16), 256)
    for low, high in ((first + reserved, last), (first, min(first + reserved - 1, last))):
        count = high - low + 1
        for step in range(max(count, 0)):
            yield str(network[low + (start + step) % count])
