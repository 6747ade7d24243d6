"""Validation of ResourceQuotas, LimitRanges and RuntimeClasses.

Counterpart: kubernetes pkg/apis/core/validation, pkg/apis/node/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podyard.api import names, quantity
from podyard.api.errors import duplicate, forbidden, invalid, required
from podyard.api.types import Message, Quantity, core_v1, node_v1
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    Rules,
    each,
    go_struct,
    immutable,
    labels,
    object_meta,
    rules,
)
from podyard.api.validation_node import resource_amount, resource_list, resource_name
from podyard.api.validation_scheduling import tolerations

_POD_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass")
_SCOPES = (*_POD_SCOPES, "CrossNamespacePodAffinity", "VolumeAttributesClass")
# Scopes under which only the number of pods can be limited, or only what pods ask for.
_POD_COUNTED = ("pods", "count/pods")
_POD_RESOURCES = frozenset(
    {
        "pods",
        "count/pods",
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
_CONFLICTS = (("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort"))
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def _named(obj: Any) -> Causes:
    return object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)


def resource_quota(obj: core_v1.ResourceQuota) -> Causes:
    """A quota: how much of what, of which pods."""
    causes = _named(obj)
    causes += _amounts(obj.spec.hard, "spec.hard")
    causes += _scopes(obj.spec)
    causes += _scope_selector(obj.spec)
    return causes + _amounts(obj.status.hard, "status.hard") + _amounts(obj.status.used, "status.used")


def _amounts(resources: Mapping[str, Quantity], path: str) -> Causes:
    causes: Causes = []
    for name in sorted(resources):
        at = f"{path}[{name}]"
        causes += _quota_name(name, at)
        causes += resource_amount(name, resources[name], at)
    return causes


def _quota_name(name: str, path: str) -> Causes:
    if name.startswith(("count/", "requests.", "limits.")) or "/" in name:
        return (
            each(path, name, names.qualified_name_problems(name))
            if "/" in name
            else resource_name(name, path)
        )
    return resource_name(name, path)


def _scopes(spec: Any) -> Causes:
    if not spec.scopes:
        return []
    causes: Causes = []
    path, shown = "spec.scopes", list(spec.scopes)
    for scope in spec.scopes:
        if scope not in _SCOPES:
            causes.append(invalid(path, shown, "unsupported scope"))
        causes += _inapplicable(scope, spec.hard, path, shown)
    for one, other in _CONFLICTS:
        if one in spec.scopes and other in spec.scopes:
            causes.append(invalid(path, shown, "conflicting scopes"))
    return causes


def _inapplicable(scope: str, hard: Mapping[str, Quantity], path: str, shown: Any) -> Causes:
    causes: Causes = []
    for name in sorted(hard):
        allowed = _POD_COUNTED if scope == "BestEffort" else _POD_RESOURCES
        counted = name in allowed or (scope == "VolumeAttributesClass" and "storage" in name)
        if scope in _SCOPES and not counted and "/" not in name:
            causes.append(invalid(path, shown, "unsupported scope applied to resource"))
    return causes


def _scope_selector(spec: Any) -> Causes:
    causes: Causes = []
    path = "spec.scopeSelector.matchExpressions"
    for item in spec.scopeSelector.matchExpressions:
        at = f"{path}.scopeName"
        if item.scopeName not in _SCOPES:
            causes.append(invalid(at, item.scopeName, "unsupported scope"))
        causes += _inapplicable(item.scopeName, spec.hard, at, item.scopeName)
        if item.scopeName not in ("PriorityClass", "VolumeAttributesClass") and item.operator != "Exists":
            detail = (
                "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            causes.append(invalid(f"{path}.operator", item.operator, detail))
        if item.operator in ("In", "NotIn") and not item.values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            causes.append(required(f"{path}.values", detail))
        elif item.operator in ("Exists", "DoesNotExist") and item.values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            causes.append(invalid(f"{path}.values", list(item.values), detail))
        elif item.operator not in _OPERATORS:
            causes.append(invalid(f"{path}.operator", item.operator, "not a valid selector operator"))
    return causes


def _scopes_stay(new: core_v1.ResourceQuota, old: core_v1.ResourceQuota) -> Causes:
    if sorted(new.spec.scopes) == sorted(old.spec.scopes):
        return []
    return [invalid("spec.scopes", list(new.spec.scopes), IMMUTABLE)]


def _quota_status(new: core_v1.ResourceQuota, old: core_v1.ResourceQuota) -> Causes:
    return _amounts(new.status.hard, "status.hard") + _amounts(new.status.used, "status.used")


def limit_range(obj: core_v1.LimitRange) -> Causes:
    """Bounds and defaults of what pods and claims ask for."""
    causes = _named(obj)
    seen: set[str] = set()
    for index, item in enumerate(obj.spec.limits):
        path = f"spec.limits[{index}]"
        if item.type in seen:
            causes.append(duplicate(f"{path}.type", item.type))
        seen.add(item.type)
        causes += each(f"{path}.type", item.type, names.qualified_name_problems(item.type))
        causes += _limit_item(item, path)
    return causes


def _limit_item(item: Any, path: str) -> Causes:
    causes: Causes = []
    lists = {
        name: getattr(item, name)
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    }
    for name, values in lists.items():
        for key in sorted(values):
            at = f"{path}.{name}[{key}]"
            causes += resource_name(key, at) + resource_amount(key, values[key], at)
    if item.type == "Pod":
        for name in ("default", "defaultRequest"):
            if lists[name]:
                detail = "may not be specified when `type` is 'Pod'"
                causes.append(forbidden(f"{path}.{name}", detail))
    if item.type == "PersistentVolumeClaim" and "storage" not in item.min and "storage" not in item.max:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        causes.append(required(f"{path}.limits", detail))
    if causes:
        return causes
    for key in sorted({key for values in lists.values() for key in values}):
        causes += _order(key, lists, path)
    return causes


def _order(key: str, lists: Mapping[str, Mapping[str, Quantity]], path: str) -> Causes:
    amounts = {name: quantity.of(values[key]) for name, values in lists.items() if key in values}
    causes: Causes = []
    for low, high in (
        ("min", "max"),
        ("defaultRequest", "max"),
        ("default", "max"),
        ("min", "defaultRequest"),
        ("min", "default"),
        ("defaultRequest", "default"),
    ):
        if low in amounts and high in amounts and amounts[low].nanos > amounts[high].nanos:
            # Upstream names the value that is out of the bounds.
            wrong = high if low == "min" and high != "max" else low
            words = {"defaultRequest": "default request", "default": "default", "min": "min", "max": "max"}
            detail = f"{words[low]} value {amounts[low]} is greater than {words[high]} value {amounts[high]}"
            causes.append(invalid(f"{path}.{wrong}[{key}]", str(amounts[wrong]), detail))
    ratio = amounts.get("maxLimitRequestRatio")
    if ratio is not None:
        at = f"{path}.maxLimitRequestRatio[{key}]"
        if ratio.nanos < quantity.NANOS:
            causes.append(invalid(at, str(ratio), f"ratio {ratio} is less than 1"))
        if "min" in amounts and "max" in amounts and amounts["min"].nanos:
            limit = amounts["max"].nanos / amounts["min"].nanos
            if ratio.nanos / quantity.NANOS > limit:
                detail = f"ratio {ratio} is greater than max/min = {limit:f}"
                causes.append(invalid(at, str(ratio), detail))
    return causes


def runtime_class(obj: node_v1.RuntimeClass) -> Causes:
    """A handler of the node's container runtime, what it costs and where it is."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    if not obj.handler:
        causes.append(required("handler"))
    else:
        causes += each("handler", obj.handler, names.dns_label_problems(obj.handler))
    causes += resource_list(obj.overhead.podFixed, "overhead.podFixed")
    if not obj.HasField("scheduling"):
        return causes
    causes += labels(obj.scheduling.nodeSelector, "scheduling.nodeSelector")
    causes += tolerations(obj.scheduling.tolerations, "scheduling.tolerations")
    return causes + _repeated(obj.scheduling.tolerations)


def _repeated(values: Sequence[Any]) -> Causes:
    return [
        duplicate(f"scheduling.tolerations[{index}]", go_struct(value))
        for index, value in enumerate(values)
        if any(value == before for before in values[:index])
    ]


def _handler_stays(new: node_v1.RuntimeClass, old: node_v1.RuntimeClass) -> Causes:
    return immutable("handler", new.handler, old.handler)


RULES: Mapping[type[Message], Rules] = {
    core_v1.LimitRange: rules(limit_range),
    core_v1.ResourceQuota: rules(resource_quota, _scopes_stay, status=_quota_status),
    node_v1.RuntimeClass: rules(runtime_class, _handler_stays),
}
