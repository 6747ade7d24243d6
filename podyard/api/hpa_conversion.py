"""autoscaling/v1 HorizontalPodAutoscaler <-> autoscaling/v2: one stored object, two views.

The older version knows the CPU's use only; other metrics, conditions and behavior travel in
annotations, as JSON, so that a client of the older version loses nothing. Those annotations are seen
by clients of the older version alone.

Counterpart: kubernetes pkg/apis/autoscaling/v1 conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from podyard.api import codec
from podyard.api.errors import BadRequest
from podyard.api.types import Message, autoscaling_v1, autoscaling_v2

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_ANNOTATIONS = (METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR)
_KEPT_SPEC = ("minReplicas",)
_KEPT_STATUS = ("observedGeneration",)


def to_v1(full: autoscaling_v2.HorizontalPodAutoscaler) -> autoscaling_v1.HorizontalPodAutoscaler:
    """The older view of a stored autoscaler."""
    view = autoscaling_v1.HorizontalPodAutoscaler()
    view.metadata.CopyFrom(full.metadata)
    for name in _ANNOTATIONS:
        view.metadata.annotations.pop(name, None)
    _copy_common(full, view)
    cpu = next((metric for metric in full.spec.metrics if _is_cpu(metric)), None)
    if cpu is not None:
        view.spec.targetCPUUtilizationPercentage = cpu.resource.target.averageUtilization
    others = [_metric_to_v1(metric) for metric in full.spec.metrics if metric is not cpu]
    _annotate(view, METRICS, others)
    current = next((metric for metric in full.status.currentMetrics if _is_current_cpu(metric)), None)
    if current is not None:
        view.status.currentCPUUtilizationPercentage = current.resource.current.averageUtilization
    _annotate(view, CURRENT_METRICS, [_current_to_v1(metric) for metric in full.status.currentMetrics])
    _annotate(
        view,
        CONDITIONS,
        [
            codec.from_dict(codec.to_dict(item), autoscaling_v1.HorizontalPodAutoscalerCondition)
            for item in full.status.conditions
        ],
    )
    if full.spec.HasField("behavior"):
        view.metadata.annotations[BEHAVIOR] = orjson.dumps(codec.to_dict(full.spec.behavior)).decode()
    return view


def to_v2(view: autoscaling_v1.HorizontalPodAutoscaler) -> autoscaling_v2.HorizontalPodAutoscaler:
    """The stored form of an older view; annotations that can't be read say nothing."""
    full = autoscaling_v2.HorizontalPodAutoscaler()
    full.metadata.CopyFrom(view.metadata)
    for name in _ANNOTATIONS:
        full.metadata.annotations.pop(name, None)
    _copy_common(view, full)
    for metric in _noted(view, METRICS, autoscaling_v1.MetricSpec):
        full.spec.metrics.append(_metric_to_v2(metric))
    if view.spec.HasField("targetCPUUtilizationPercentage"):
        cpu = autoscaling_v2.MetricSpec(type="Resource")
        cpu.resource.name = "cpu"
        cpu.resource.target.type = "Utilization"
        cpu.resource.target.averageUtilization = view.spec.targetCPUUtilizationPercentage
        full.spec.metrics.append(cpu)
    noted = _noted(view, CURRENT_METRICS, autoscaling_v1.MetricStatus)
    for current in noted:
        full.status.currentMetrics.append(_current_to_v2(current))
    if not noted and view.status.HasField("currentCPUUtilizationPercentage"):
        added = full.status.currentMetrics.add(type="Resource")
        added.resource.name = "cpu"
        added.resource.current.averageUtilization = view.status.currentCPUUtilizationPercentage
    for condition in _noted(view, CONDITIONS, autoscaling_v1.HorizontalPodAutoscalerCondition):
        value = codec.to_dict(condition)
        full.status.conditions.append(codec.from_dict(value, autoscaling_v2.HorizontalPodAutoscalerCondition))
    behavior = _parsed(view.metadata.annotations.get(BEHAVIOR, ""))
    if isinstance(behavior, dict):
        made = _built(behavior, autoscaling_v2.HorizontalPodAutoscalerBehavior)
        if made is not None:
            full.spec.behavior.CopyFrom(made)  # type: ignore[arg-type]
    return full


def _copy_common(source: Any, target: Any) -> None:
    for name in ("kind", "name", "apiVersion"):
        setattr(target.spec.scaleTargetRef, name, getattr(source.spec.scaleTargetRef, name))
    for part, names in (("spec", _KEPT_SPEC), ("status", _KEPT_STATUS)):
        for name in names:
            if getattr(source, part).HasField(name):
                setattr(getattr(target, part), name, getattr(getattr(source, part), name))
    target.spec.maxReplicas = source.spec.maxReplicas
    target.status.currentReplicas = source.status.currentReplicas
    target.status.desiredReplicas = source.status.desiredReplicas
    if source.status.HasField("lastScaleTime"):
        target.status.lastScaleTime.CopyFrom(source.status.lastScaleTime)


def _is_cpu(metric: autoscaling_v2.MetricSpec) -> bool:
    resource = metric.resource
    return (
        metric.type == "Resource"
        and resource.name == "cpu"
        and resource.target.HasField("averageUtilization")
    )


def _is_current_cpu(metric: autoscaling_v2.MetricStatus) -> bool:
    resource = metric.resource
    return (
        metric.type == "Resource"
        and resource.name == "cpu"
        and resource.current.HasField("averageUtilization")
    )


def _annotate(view: Any, name: str, values: Sequence[Message]) -> None:
    if values:
        view.metadata.annotations[name] = orjson.dumps([codec.to_dict(value) for value in values]).decode()


def _noted(view: Any, name: str, cls: type[Message]) -> list[Any]:
    parsed = _parsed(view.metadata.annotations.get(name, ""))
    if not isinstance(parsed, list):
        return []
    built = [_built(item, cls) if isinstance(item, dict) else None for item in parsed]
    return [] if None in built else built


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None


def _built(value: dict[str, Any], cls: type[Message]) -> Message | None:
    try:
        return codec.from_dict(value, cls)
    except BadRequest:
        return None


# Amounts: (name in a v1 source, name in a v2 target), by kind of metric.
_AMOUNTS = {
    "Resource": (("targetAverageUtilization", "averageUtilization"), ("targetAverageValue", "averageValue")),
    "ContainerResource": (
        ("targetAverageUtilization", "averageUtilization"),
        ("targetAverageValue", "averageValue"),
    ),
    "Pods": (("targetAverageValue", "averageValue"),),
    "Object": (("targetValue", "value"), ("averageValue", "averageValue")),
    "External": (("targetValue", "value"), ("targetAverageValue", "averageValue")),
}
_FIELD = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
_TYPE_OF = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}


def _copy_field(source: Any, name: str, target: Any, other: str) -> bool:
    """Copies one field if it is there; whether it was."""
    if not source.HasField(name):
        return False
    value = getattr(source, name)
    if isinstance(value, Message):
        getattr(target, other).CopyFrom(value)
    else:
        setattr(target, other, value)
    return True


def _identity(one: Any, other: Any, kind: str, *, older: bool) -> None:
    """What is measured: from v2 to v1 with `older`, else the other way round."""
    if kind in ("Resource", "ContainerResource"):
        other.name = one.name
        if kind == "ContainerResource":
            other.container = one.container
        return
    selector = "metricSelector" if kind == "External" else "selector"
    if older:
        other.metricName = one.metric.name
        _copy_field(one.metric, "selector", other, selector)
        if kind == "Object":
            _copy_target(one.describedObject, other.target)
    else:
        other.metric.name = one.metricName
        _copy_field(one, selector, other.metric, "selector")
        if kind == "Object":
            _copy_target(one.target, other.describedObject)


def _copy_target(source: Any, target: Any) -> None:
    target.kind, target.name, target.apiVersion = source.kind, source.name, source.apiVersion


def _metric_to_v1(metric: autoscaling_v2.MetricSpec) -> autoscaling_v1.MetricSpec:
    made = autoscaling_v1.MetricSpec(type=metric.type)
    field = _FIELD.get(metric.type)
    if field is not None:
        source, target = getattr(metric, field), getattr(made, field)
        _identity(source, target, metric.type, older=True)
        for old_name, new_name in _AMOUNTS[metric.type]:
            _copy_field(source.target, new_name, target, old_name)
    return made


def _metric_to_v2(metric: autoscaling_v1.MetricSpec) -> autoscaling_v2.MetricSpec:
    made = autoscaling_v2.MetricSpec(type=metric.type)
    field = _FIELD.get(metric.type)
    if field is not None:
        source, target = getattr(metric, field), getattr(made, field)
        _identity(source, target, metric.type, older=False)
        for old_name, new_name in reversed(_AMOUNTS[metric.type]):
            if _copy_field(source, old_name, target.target, new_name):
                target.target.type = _TYPE_OF[new_name]
    return made


def _current_name(name: str) -> str:
    return name.replace("target", "current", 1)


def _current_to_v1(metric: autoscaling_v2.MetricStatus) -> autoscaling_v1.MetricStatus:
    made = autoscaling_v1.MetricStatus(type=metric.type)
    field = _FIELD.get(metric.type)
    if field is not None:
        source, target = getattr(metric, field), getattr(made, field)
        _identity(source, target, metric.type, older=True)
        for old_name, new_name in _AMOUNTS[metric.type]:
            _copy_field(source.current, new_name, target, _current_name(old_name))
    return made


def _current_to_v2(metric: autoscaling_v1.MetricStatus) -> autoscaling_v2.MetricStatus:
    made = autoscaling_v2.MetricStatus(type=metric.type)
    field = _FIELD.get(metric.type)
    if field is not None:
        source, target = getattr(metric, field), getattr(made, field)
        _identity(source, target, metric.type, older=False)
        copied = [
            new_name
            for old_name, new_name in _AMOUNTS[metric.type]
            if _copy_field(source, _current_name(old_name), target.current, new_name)
        ]
        # The older form always has one amount, 0 when it means another.
        for name in copied if len(copied) > 1 else ():
            value = getattr(target.current, name)
            if isinstance(value, Message) and value.string in ("", "0"):  # type: ignore[attr-defined]
                target.current.ClearField(name)
    return made
