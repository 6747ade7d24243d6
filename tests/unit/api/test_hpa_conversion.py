# ruff: noqa: E501 -- one case a line
"""Autoscalers in their two versions."""

from __future__ import annotations

from typing import Any

from podyard.api import codec, hpa_conversion
from podyard.api.types import autoscaling_v1, autoscaling_v2

METRICS: list[dict[str, Any]] = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {"type": "Pods", "pods": {"metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "5"}}},
    {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "m"}, "target": {"type": "Value", "value": "5"}}},
    {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "5"}}},
    {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 5}}},
]  # fmt: skip


def test_autoscalers_lose_nothing_in_the_older_version() -> None:
    value = {
        "metadata": {"name": "a", "annotations": {"mine": "x"}},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "minReplicas": 2,
            "maxReplicas": 4,
            "metrics": METRICS,
            "behavior": {"scaleDown": {"selectPolicy": "Min"}},
        },
        "status": {
            "currentReplicas": 2,
            "conditions": [{"type": "AbleToScale", "status": "True"}],
            "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}
            ],
        },
    }
    full = codec.from_dict(value, autoscaling_v2.HorizontalPodAutoscaler)
    view = hpa_conversion.to_v1(full)
    assert view.spec.targetCPUUtilizationPercentage == 50
    assert view.status.currentCPUUtilizationPercentage == 7
    assert set(view.metadata.annotations) == {"mine", *hpa_conversion._ANNOTATIONS}
    back = codec.to_dict(hpa_conversion.to_v2(view))
    # The CPU comes last: it has a field of its own.
    value["spec"]["metrics"] = [*METRICS[1:], METRICS[0]]  # type: ignore[index]
    assert back == codec.to_dict(codec.from_dict(value, autoscaling_v2.HorizontalPodAutoscaler))
    assert codec.same(hpa_conversion.to_v1(hpa_conversion.to_v2(view)), view)


def test_annotations_that_say_nothing() -> None:
    view = autoscaling_v1.HorizontalPodAutoscaler()
    for name in hpa_conversion._ANNOTATIONS:
        view.metadata.annotations[name] = "[{" if name == hpa_conversion.METRICS else "7"
    full = hpa_conversion.to_v2(view)
    assert not full.spec.metrics
    assert not full.metadata.annotations
    assert not full.spec.HasField("behavior")
