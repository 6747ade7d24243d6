"""Validation of Ingresses, IngressClasses, NetworkPolicies, IPAddresses and ServiceCIDRs.

Counterpart: kubernetes pkg/apis/networking/validation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from podyard.api import names
from podyard.api.errors import forbidden, invalid, not_supported, required, too_long
from podyard.api.types import Message, networking_v1
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    Rules,
    conditions,
    each,
    go_struct,
    immutable,
    label_selector,
    object_meta,
    rules,
)
from podyard.api.validation_service import port_number_or_name

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_POLICY_TYPES = ("Egress", "Ingress")
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_SCOPES = ("Cluster", "Namespace")
_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDS = ("/..", "/.")
_MAX_CONTROLLER = 250
# A list that is not there, as Go's JSON has it.
_NIL = orjson.Fragment(b"null")
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"


def _subdomain(value: str, path: str) -> Causes:
    return each(path, value, names.dns_subdomain_problems(value))


def ingress(obj: networking_v1.Ingress) -> Causes:
    """A new ingress."""
    causes = _ingress(obj)
    annotation = obj.metadata.annotations.get(_CLASS_ANNOTATION)
    if annotation not in (None, obj.spec.ingressClassName) and obj.spec.HasField("ingressClassName"):
        detail = "must match `ingressClassName` when both are specified"
        causes.append(invalid(f"annotations.{_CLASS_ANNOTATION}", annotation, detail))
    return causes


def _ingress(obj: networking_v1.Ingress) -> Causes:
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    if not spec.rules and not spec.HasField("defaultBackend"):
        detail = "either `defaultBackend` or `rules` must be specified"
        causes.append(invalid("spec", _NIL, detail))
    if spec.HasField("defaultBackend"):
        causes += _backend(spec.defaultBackend, "spec.defaultBackend")
    for index, rule in enumerate(spec.rules):
        causes += _ingress_rule(rule, f"spec.rules[{index}]")
    for index, tls in enumerate(spec.tls):
        at = f"spec.tls[{index}]"
        for position, host in enumerate(tls.hosts):
            causes += _host(host, f"{at}.hosts[{position}]")
        if tls.secretName:
            causes += _subdomain(tls.secretName, f"{at}.secretName")
    if spec.HasField("ingressClassName"):
        causes += _subdomain(spec.ingressClassName, "spec.ingressClassName")
    return causes


def _host(host: str, path: str) -> Causes:
    if "*" in host:
        return each(path, host, names.wildcard_problems(host))
    return _subdomain(host, path)


def _ingress_rule(rule: Any, path: str) -> Causes:
    causes: Causes = []
    if rule.host:
        if not names.ip_problems(rule.host):
            causes.append(invalid(f"{path}.host", rule.host, "must be a DNS name, not an IP address"))
        causes += _host(rule.host, f"{path}.host")
    if not rule.ingressRuleValue.HasField("http"):
        return causes
    at = f"{path}.http.paths"
    if not rule.ingressRuleValue.http.paths:
        causes.append(required(at))
    for index, item in enumerate(rule.ingressRuleValue.http.paths):
        causes += _http_path(item, f"{at}[{index}]")
    return causes


def _http_path(item: Any, path: str) -> Causes:
    if not item.HasField("pathType"):
        return [required(f"{path}.pathType", "pathType must be specified")]
    causes: Causes = []
    at = f"{path}.path"
    if item.pathType in ("Exact", "Prefix"):
        if not item.path.startswith("/"):
            causes.append(invalid(at, item.path, "must be an absolute path"))
        if item.path:
            for part in _BAD_SEQUENCES:
                if part in item.path:
                    causes.append(invalid(at, item.path, f"must not contain '{part}'"))
            for part in _BAD_ENDS:
                if item.path.endswith(part):
                    causes.append(invalid(at, item.path, f"cannot end with '{part}'"))
    elif item.pathType == "ImplementationSpecific":
        if item.path and not item.path.startswith("/"):
            causes.append(invalid(at, item.path, "must be an absolute path"))
    else:
        causes.append(not_supported(f"{path}.pathType", item.pathType, _PATH_TYPES))
    return causes + _backend(item.backend, f"{path}.backend")


def _backend(backend: Any, path: str) -> Causes:
    has_resource, has_service = backend.HasField("resource"), backend.HasField("service")
    if has_resource and has_service:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if has_resource:
        return _reference(backend.resource, backend.resource.apiGroup, f"{path}.resource")
    if not has_service:
        return [invalid(path, "", "resource or service backend is required")]
    return _service_backend(backend.service, path)


def _reference(reference: Any, group: str, path: str) -> Causes:
    """Kind and name of another object, and its group where it has one."""
    causes = _subdomain(group, f"{path}.apiGroup") if group else []
    for name in ("kind", "name"):
        value = getattr(reference, name)
        if not value:
            causes.append(required(f"{path}.{name}"))
        else:
            causes += each(f"{path}.{name}", value, names.path_segment_problems(value))
    return causes


def _service_backend(service: Any, path: str) -> Causes:
    causes: Causes = []
    at = f"{path}.service"
    if not service.name:
        causes.append(required(f"{at}.name"))
    else:
        causes += each(f"{at}.name", service.name, names.dns_label_problems(service.name))
    name, number = service.port.name, service.port.number
    if name and number:
        causes.append(invalid(path, "", "cannot set both port name & port number"))
    elif name:
        causes += each(f"{at}.port.name", name, names.port_name_problems(name))
    elif number:
        causes += each(f"{at}.port.number", number, names.port_number_problems(number))
    else:
        causes.append(required(path, "port name or number is required"))
    return causes


def _ingress_status(new: networking_v1.Ingress, old: networking_v1.Ingress) -> Causes:
    causes: Causes = []
    for index, item in enumerate(new.status.loadBalancer.ingress):
        at = f"status.loadBalancer.ingress[{index}]"
        if item.ip:
            causes += each(f"{at}.ip", item.ip, names.ip_problems(item.ip))
        if item.hostname:
            causes += _subdomain(item.hostname, f"{at}.hostname")
            if not names.ip_problems(item.hostname):
                detail = "must be a DNS name, not an IP address"
                causes.append(invalid(f"{at}.hostname", item.hostname, detail))
    return causes


def ingress_class(obj: networking_v1.IngressClass) -> Causes:
    """Which controller, with which parameters."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    controller = obj.spec.controller
    if not controller:
        causes.append(required("spec.controller"))
    else:
        if len(controller) > _MAX_CONTROLLER:
            causes.append(too_long("spec.controller", _MAX_CONTROLLER))
        causes += each("spec.controller", controller, names.prefixed_path_problems(controller))
    if not obj.spec.HasField("parameters"):
        return causes
    parameters, path = obj.spec.parameters, "spec.parameters"
    causes += _reference(parameters, parameters.aPIGroup, path)
    if not parameters.HasField("scope"):
        causes.append(required(f"{path}.scope"))
    elif parameters.scope not in _SCOPES:
        causes.append(not_supported(f"{path}.scope", parameters.scope, _SCOPES))
    elif parameters.scope == "Namespace":
        if not parameters.HasField("namespace"):
            causes.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            problems = names.dns_label_problems(parameters.namespace)
            causes += each(f"{path}.namespace", parameters.namespace, problems)
    elif parameters.HasField("namespace"):
        causes.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    return causes


def _controller_stays(new: networking_v1.IngressClass, old: networking_v1.IngressClass) -> Causes:
    return immutable("spec.controller", new.spec.controller, old.spec.controller)


def network_policy(obj: networking_v1.NetworkPolicy) -> Causes:
    """Which pods, and who may talk to whom."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    causes += label_selector(spec.podSelector, "spec.podSelector")
    for index, rule in enumerate(spec.ingress):
        at = f"spec.ingress[{index}]"
        causes += _policy_ports(rule.ports, f"{at}.ports")
        causes += _peers(getattr(rule, "from"), f"{at}.from")
    for index, out in enumerate(spec.egress):
        at = f"spec.egress[{index}]"
        causes += _policy_ports(out.ports, f"{at}.ports")
        causes += _peers(out.to, f"{at}.to")
    if len(spec.policyTypes) > len(_POLICY_TYPES):
        detail = "may not specify more than two policyTypes"
        causes.append(invalid("spec.policyTypes", list(spec.policyTypes), detail))
        return causes
    for index, kind in enumerate(spec.policyTypes):
        if kind not in _POLICY_TYPES:
            causes.append(not_supported(f"spec.policyTypes[{index}]", kind, _POLICY_TYPES))
    return causes


def _policy_ports(ports: Sequence[Any], path: str) -> Causes:
    causes: Causes = []
    for index, item in enumerate(ports):
        at = f"{path}[{index}]"
        if item.HasField("protocol") and item.protocol not in _PROTOCOLS:
            causes.append(not_supported(f"{at}.protocol", item.protocol, _PROTOCOLS))
        if item.HasField("port"):
            causes += port_number_or_name(item.port, f"{at}.port")
        if item.HasField("endPort"):
            causes += _end_port(item, f"{at}.endPort")
    return causes


def _end_port(item: Any, path: str) -> Causes:
    if not item.HasField("port"):
        return [invalid(path, item.endPort, "may not be specified when `port` is not specified")]
    if item.port.type == 1:
        return [invalid(path, item.endPort, "may not be specified when `port` is non-numeric")]
    causes: Causes = []
    if item.endPort < item.port.intVal:
        # Upstream shows the other end.
        causes.append(invalid(path, item.port.intVal, "must be greater than or equal to `port`"))
    return causes + each(path, item.endPort, names.port_number_problems(item.endPort))


def _peers(peers: Sequence[Any], path: str) -> Causes:
    causes: Causes = []
    for index, peer in enumerate(peers):
        at = f"{path}[{index}]"
        count = 0
        for name in ("podSelector", "namespaceSelector"):
            if peer.HasField(name):
                count += 1
                causes += label_selector(getattr(peer, name), f"{at}.{name}")
        if peer.HasField("ipBlock"):
            causes += _block(peer.ipBlock, f"{at}.ipBlock")
        if not count and not peer.HasField("ipBlock"):
            causes.append(required(at, "must specify a peer"))
        elif count and peer.HasField("ipBlock"):
            causes.append(forbidden(at, "may not specify both ipBlock and another peer"))
    return causes


def _block(block: Any, path: str) -> Causes:
    if not block.cidr:
        return [required(f"{path}.cidr")]
    problems = names.cidr_problems(block.cidr)
    if problems:
        return each(f"{path}.cidr", block.cidr, problems)
    outer = ipaddress.ip_network(block.cidr, strict=False)
    causes: Causes = []
    for index, text in enumerate(getattr(block, "except")):
        at = f"{path}.except[{index}]"
        problems = names.cidr_problems(text)
        causes += each(at, text, problems)
        if problems:
            continue
        inner: Any = ipaddress.ip_network(text, strict=False)
        if inner.version != outer.version or not inner.subnet_of(outer) or inner == outer:
            causes.append(invalid(at, text, "must be a strict subset of `cidr`"))
    return causes


def ip_address(obj: networking_v1.IPAddress) -> Causes:
    """An address that someone holds; its name is the address."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.canonical_ip_problems)
    if not obj.spec.HasField("parentRef"):
        return [*causes, required("spec.parentRef")]
    parent, path = obj.spec.parentRef, "spec.parentRef"
    if parent.group:
        causes += _subdomain(parent.group, f"{path}.group")
    for name in ("resource", "name"):
        value = getattr(parent, name)
        if not value:
            causes.append(required(f"{path}.{name}"))
        else:
            causes += each(f"{path}.{name}", value, names.path_segment_problems(value))
    if parent.namespace:
        problems = names.path_segment_problems(parent.namespace)
        causes += each(f"{path}.namespace", parent.namespace, problems)
    return causes


def _parent_stays(new: networking_v1.IPAddress, old: networking_v1.IPAddress) -> Causes:
    if new.spec.parentRef == old.spec.parentRef:
        return []
    return [invalid("spec.parentRef", go_struct(new.spec.parentRef), IMMUTABLE)]


def service_cidr(obj: networking_v1.ServiceCIDR) -> Causes:
    """A range of Services' addresses, one of each family at most."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    cidrs = list(obj.spec.cidrs)
    if not cidrs:
        return [*causes, required("spec.cidrs", "at least one CIDR required")]
    if len(cidrs) > 2:
        causes.append(invalid("spec.cidrs", {"CIDRs": cidrs}, "may only hold up to 2 values"))
        return causes
    for index, cidr in enumerate(cidrs):
        causes += each(f"spec.cidrs[{index}]", cidr, names.cidr_problems(cidr))
    if len(cidrs) == 2 and (":" in cidrs[0]) == (":" in cidrs[1]):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        causes.append(invalid("spec.cidrs", cidrs, detail))
    return causes


def _cidrs_stay(new: networking_v1.ServiceCIDR, old: networking_v1.ServiceCIDR) -> Causes:
    before, after = list(old.spec.cidrs), list(new.spec.cidrs)
    kept = min(len(before), len(after))
    if len(before) != len(after) and (len(before), len(after)) != (1, 2):
        return [invalid("spec.cidrs", after, IMMUTABLE)]
    return [
        invalid(f"spec.cidrs[{index}]", after[index], IMMUTABLE)
        for index in range(kept)
        if after[index] != before[index]
    ]


def _cidr_status(new: networking_v1.ServiceCIDR, old: networking_v1.ServiceCIDR) -> Causes:
    return conditions(new.status.conditions, "status.conditions")


RULES: Mapping[type[Message], Rules] = {
    networking_v1.IPAddress: rules(ip_address, _parent_stays),
    networking_v1.Ingress: Rules(
        ingress, rules(_ingress).update, rules(_ingress, status=_ingress_status).parts
    ),
    networking_v1.IngressClass: rules(ingress_class, _controller_stays),
    networking_v1.NetworkPolicy: rules(network_policy),
    networking_v1.ServiceCIDR: rules(service_cidr, _cidrs_stay, status=_cidr_status),
}
