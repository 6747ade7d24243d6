"""Validation of nodes, taints and resource lists.

Counterpart: kubernetes pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podyard.api import codec, names, quantity
from podyard.api.errors import duplicate, forbidden, invalid, not_supported, required
from podyard.api.types import Node, Quantity, Taint
from podyard.api.validation_meta import (
    Causes,
    each,
    go_struct,
    label_name,
    object_meta,
    object_meta_update,
)

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STANDARD_RESOURCES = frozenset(
    {
        "cpu",
        "memory",
        "ephemeral-storage",
        "storage",
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
_INTEGER_RESOURCES = frozenset(
    {
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_MAX_POD_CIDRS = 2


def node(obj: Node) -> Causes:
    """A node as a whole."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    # Upstream reports taints under metadata.
    causes += taints(obj.spec.taints, "metadata.taints")
    causes += resource_list(obj.status.capacity, "status.capacity")
    causes += resource_list(obj.status.allocatable, "status.allocatable")
    return causes + _pod_cidrs(obj)


def _pod_cidrs(obj: Node) -> Causes:
    causes: Causes = []
    cidrs = list(obj.spec.podCIDRs)
    for index, cidr in enumerate(cidrs):
        causes += each(f"spec.podCIDRs[{index}]", cidr, names.cidr_problems(cidr))
    if causes or not cidrs:
        return causes
    families = [":" in cidr for cidr in cidrs]
    if len(cidrs) > _MAX_POD_CIDRS or len(set(families)) != len(families):
        detail = "may specify no more than one CIDR for each IP family"
        causes.append(invalid("spec.podCIDRs", cidrs, detail))
    return causes


def node_update(new: Node, old: Node) -> Causes:
    """An update of a node or its status."""
    causes = object_meta_update(new.metadata, old.metadata)
    causes += node(new)
    if old.spec.podCIDRs and list(new.spec.podCIDRs) != list(old.spec.podCIDRs):
        causes.append(
            forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
        )
    if old.spec.providerID and new.spec.providerID != old.spec.providerID:
        causes.append(
            forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
        )
    if new.spec.externalID != old.spec.externalID:
        causes.append(forbidden("spec.externalID", "may not be updated"))
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(new.status.addresses):
        key = (address.type, address.address)
        if key in seen:
            causes.append(duplicate(f"status.addresses[{index}]", go_struct(address)))
        seen.add(key)
    return causes


def taints(values: Sequence[Taint], path: str) -> Causes:
    """Taints of a node: well-formed, and no key with the same effect twice."""
    causes: Causes = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(values):
        at = f"{path}[{index}]"
        causes += label_name(taint.key, f"{at}.key")
        causes += each(f"{at}.value", taint.value, names.label_value_problems(taint.value))
        causes += taint_effect(taint.effect, f"{at}.effect", needed=True)
        if (taint.key, taint.effect) in seen:
            found = duplicate(at, go_struct(taint))
            found.message += ": taints must be unique by key and effect pair"
            causes.append(found)
        seen.add((taint.key, taint.effect))
    return causes


def taint_effect(effect: str, path: str, *, needed: bool) -> Causes:
    """An effect of a taint or toleration."""
    if effect in TAINT_EFFECTS or (not effect and not needed):
        return []
    return [not_supported(path, effect, TAINT_EFFECTS)] if effect else [required(path)]


def resource_list(resources: Mapping[str, Quantity], path: str) -> Causes:
    """Names and amounts of a node's resources."""
    causes: Causes = []
    for name in sorted(resources):
        at = f"{path}[{name}]"
        causes += resource_name(name, at)
        causes += resource_amount(name, resources[name], at)
    return causes


def resource_name(name: str, path: str) -> Causes:
    """A resource's name: a standard one or a qualified one."""
    causes = each(path, name, names.qualified_name_problems(name))
    if not causes and "/" not in name and name not in _STANDARD_RESOURCES and not _is_hugepages(name):
        causes.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return causes


def _is_hugepages(name: str) -> bool:
    return name.startswith("hugepages-")


def is_extended(name: str) -> bool:
    """Whether the resource is one that devices offer (`example.com/gpu`)."""
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.")


def is_overcommittable(name: str) -> bool:
    """Whether limits may exceed requests."""
    return not is_extended(name) and not _is_hugepages(name)


def resource_amount(name: str, value: Quantity, path: str) -> Causes:
    """An amount: a quantity, not negative, whole where the resource is counted."""
    try:
        amount = quantity.of(value)
    except quantity.QuantityError as error:
        return [invalid(path, value.string, str(error))]
    if amount.nanos < 0:
        return [invalid(path, str(amount), "must be greater than or equal to 0")]
    whole = name in _INTEGER_RESOURCES or is_extended(name)
    if whole and amount.nanos % quantity.NANOS:
        return [invalid(path, codec.to_dict(value), "must be an integer")]
    return []
