"""Validation of HorizontalPodAutoscalers, in the version in which they are stored.

Counterpart: kubernetes pkg/apis/autoscaling/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.api import hpa_conversion, names, quantity
from podyard.api.errors import forbidden, invalid, not_supported, required
from podyard.api.types import Message, Quantity, autoscaling_v1, autoscaling_v2
from podyard.api.validation_meta import (
    Causes,
    Rules,
    each,
    label_selector,
    non_negative,
    object_meta,
    rules,
)

_METRICS = {
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "External": "external",
    "ContainerResource": "containerResource",
}
_TARGETS = ("Utilization", "Value", "AverageValue")
_SELECTS = ("Disabled", "Max", "Min")
_POLICIES = ("Percent", "Pods")
_MAX_PERIOD_S = 1800
_MAX_STABILIZATION_S = 3600


def autoscaler(obj: autoscaling_v2.HorizontalPodAutoscaler) -> Causes:
    """An autoscaler: of what, between which numbers, by which metrics."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    # Upstream's gate HPAScaleToZero is off by default.
    if spec.HasField("minReplicas") and spec.minReplicas < 1:
        detail = "must be greater than or equal to 1"
        causes.append(invalid("spec.minReplicas", spec.minReplicas, detail))
    if spec.maxReplicas < 0:
        causes.append(invalid("spec.maxReplicas", spec.maxReplicas, "must be greater than or equal to 0"))
    elif spec.maxReplicas == 0:
        causes.append(required("spec.maxReplicas", "must be greater than 0"))
    if spec.HasField("minReplicas") and spec.maxReplicas < spec.minReplicas:
        detail = "must be greater than or equal to `minReplicas`"
        causes.append(invalid("spec.maxReplicas", spec.maxReplicas, detail))
    causes += _reference(spec.scaleTargetRef, "spec.scaleTargetRef")
    for index, metric in enumerate(spec.metrics):
        causes += _metric(metric, f"spec.metrics[{index}]")
    if spec.HasField("behavior"):
        for name in ("scaleUp", "scaleDown"):
            if spec.behavior.HasField(name):
                causes += _scaling(getattr(spec.behavior, name), f"spec.behavior.{name}")
    return causes


def _reference(reference: Any, path: str) -> Causes:
    causes: Causes = []
    for name in ("kind", "name"):
        value = getattr(reference, name)
        if not value:
            causes.append(required(f"{path}.{name}"))
        else:
            causes += each(f"{path}.{name}", value, names.path_segment_problems(value))
    if reference.apiVersion.count("/") > 1:
        detail = f"unexpected GroupVersion string: {reference.apiVersion}"
        causes.append(invalid(f"{path}.apiVersion", reference.apiVersion, detail))
    elif reference.apiVersion.endswith("/"):
        causes.append(invalid(f"{path}.apiVersion", reference.apiVersion, "version must not be empty"))
    return causes


def _metric(metric: Any, path: str) -> Causes:
    if not metric.type:
        return [required(f"{path}.type", "must specify a metric source type")]
    if metric.type not in _METRICS:
        return [not_supported(f"{path}.type", metric.type, _METRICS)]
    wanted = _METRICS[metric.type]
    causes: Causes = []
    for name in _METRICS.values():
        if name != wanted and metric.HasField(name):
            detail = f"must populate the given metric source only: {wanted}"
            causes.append(forbidden(f"{path}.{name}", detail))
    if not metric.HasField(wanted):
        detail = f"must populate information for the given metric source: {wanted}"
        return [*causes, required(f"{path}.{wanted}", detail)]
    return causes + _SOURCES[wanted](getattr(metric, wanted), f"{path}.{wanted}")


def _identifier(metric: Any, path: str) -> Causes:
    causes: Causes = []
    if not metric.name:
        causes.append(required(f"{path}.name"))
    else:
        causes += each(f"{path}.name", metric.name, names.path_segment_problems(metric.name))
    return causes + (
        label_selector(metric.selector, f"{path}.selector") if metric.HasField("selector") else []
    )


def _target(target: Any, path: str) -> Causes:
    causes: Causes = []
    if not target.type:
        causes.append(required(f"{path}.type", "must specify a metric target type"))
    elif target.type not in _TARGETS:
        detail = "must be either Utilization, Value, or AverageValue"
        causes.append(invalid(f"{path}.type", target.type, detail))
    for name in ("value", "averageValue"):
        if target.HasField(name) and not _is_positive(getattr(target, name)):
            shown = getattr(target, name).string
            causes.append(invalid(f"{path}.{name}", shown, "must be positive"))
    if target.HasField("averageUtilization") and target.averageUtilization < 1:
        detail = "must be greater than 0"
        causes.append(invalid(f"{path}.averageUtilization", target.averageUtilization, detail))
    return causes


def _is_positive(value: Quantity) -> bool:
    try:
        return quantity.of(value).nanos > 0
    except quantity.QuantityError:
        return False


def _object(source: Any, path: str) -> Causes:
    causes = _reference(source.describedObject, f"{path}.describedObject")
    causes += _identifier(source.metric, f"{path}.metric")
    causes += _target(source.target, f"{path}.target")
    if not source.target.HasField("value") and not source.target.HasField("averageValue"):
        detail = "must set either a target value for metric or a per-pod target"
        causes.append(required(f"{path}.target.averageValue", detail))
    return causes


def _external(source: Any, path: str) -> Causes:
    causes = _identifier(source.metric, f"{path}.metric")
    causes += _target(source.target, f"{path}.target")
    has_value, has_average = source.target.HasField("value"), source.target.HasField("averageValue")
    if not has_value and not has_average:
        detail = "must set either a target value for metric or a per-pod target"
        causes.append(required(f"{path}.target.averageValue", detail))
    if has_value and has_average:
        detail = "may not set both a target value for metric and a per-pod target"
        causes.append(forbidden(f"{path}.target.value", detail))
    return causes


def _pods(source: Any, path: str) -> Causes:
    causes = _identifier(source.metric, f"{path}.metric") + _target(source.target, f"{path}.target")
    if not source.target.HasField("averageValue") or not _is_positive(source.target.averageValue):
        detail = "must specify a positive target averageValue"
        causes.append(required(f"{path}.target.averageValue", detail))
    return causes


def _resource(source: Any, path: str) -> Causes:
    causes: Causes = []
    if not source.name:
        causes.append(required(f"{path}.name", "must specify a resource name"))
    causes += _target(source.target, f"{path}.target")
    has_use, has_average = (
        source.target.HasField("averageUtilization"),
        source.target.HasField("averageValue"),
    )
    if not has_use and not has_average:
        detail = "must set either a target raw value or a target utilization"
        causes.append(required(f"{path}.target.averageUtilization", detail))
    if has_use and has_average:
        detail = "may not set both a target raw value and a target utilization"
        causes.append(forbidden(f"{path}.target.averageValue", detail))
    return causes


def _container_resource(source: Any, path: str) -> Causes:
    causes = [] if source.container else [required(f"{path}.container", "must specify a container")]
    return causes + _resource(source, path)


_SOURCES = {
    "object": _object,
    "pods": _pods,
    "resource": _resource,
    "external": _external,
    "containerResource": _container_resource,
}


def _scaling(rule: Any, path: str) -> Causes:
    causes: Causes = []
    if rule.HasField("stabilizationWindowSeconds"):
        at, seconds = f"{path}.stabilizationWindowSeconds", rule.stabilizationWindowSeconds
        causes += non_negative(at, seconds)
        if seconds > _MAX_STABILIZATION_S:
            causes.append(invalid(at, seconds, f"must be less than or equal to {_MAX_STABILIZATION_S}"))
    if rule.HasField("selectPolicy") and rule.selectPolicy not in _SELECTS:
        causes.append(not_supported(f"{path}.selectPolicy", rule.selectPolicy, _SELECTS))
    if not rule.policies:
        causes.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rule.policies):
        causes += _policy(policy, f"{path}.policies[{index}]")
    return causes


def _policy(policy: Any, path: str) -> Causes:
    causes: Causes = []
    if policy.type not in _POLICIES:
        causes.append(not_supported(f"{path}.type", policy.type, _POLICIES))
    if policy.value <= 0:
        causes.append(invalid(f"{path}.value", policy.value, "must be greater than zero"))
    if policy.periodSeconds <= 0:
        causes.append(invalid(f"{path}.periodSeconds", policy.periodSeconds, "must be greater than zero"))
    if policy.periodSeconds > _MAX_PERIOD_S:
        detail = f"must be less than or equal to {_MAX_PERIOD_S}"
        causes.append(invalid(f"{path}.periodSeconds", policy.periodSeconds, detail))
    return causes


def _autoscaler_v1(obj: autoscaling_v1.HorizontalPodAutoscaler) -> Causes:
    # Upstream checks its internal form, whose fields have the newer names.
    return autoscaler(hpa_conversion.to_v2(obj))


def _status(new: Any, old: Any) -> Causes:
    causes: Causes = []
    for name in ("currentReplicas", "desiredReplicas"):
        causes += non_negative(f"status.{name}", getattr(new.status, name))
    return causes


RULES: Mapping[type[Message], Rules] = {
    autoscaling_v1.HorizontalPodAutoscaler: rules(_autoscaler_v1, status=_status),
    autoscaling_v2.HorizontalPodAutoscaler: rules(autoscaler, status=_status),
}
