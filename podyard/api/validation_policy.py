"""Validation of PodDisruptionBudgets.

Counterpart: kubernetes pkg/apis/policy/validation.
"""

from __future__ import annotations

from podyard.api import names
from podyard.api.errors import invalid, not_supported
from podyard.api.types import policy_v1
from podyard.api.validation_apps import int_or_percent
from podyard.api.validation_meta import (
    Causes,
    conditions,
    go_struct,
    label_selector,
    non_negative,
    object_meta,
    object_meta_update,
)

_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def pod_disruption_budget(obj: policy_v1.PodDisruptionBudget) -> Causes:
    """A budget: one of the two ways to say it."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.path_segment_problems)
    spec = obj.spec
    if spec.HasField("minAvailable") and spec.HasField("maxUnavailable"):
        detail = "minAvailable and maxUnavailable cannot be both set"
        causes.append(invalid("spec", go_struct(spec), detail))
    for name in ("minAvailable", "maxUnavailable"):
        if spec.HasField(name):
            causes += int_or_percent(getattr(spec, name), f"spec.{name}", at_most_all=True)
    causes += label_selector(spec.selector, "spec.selector")
    policy = spec.unhealthyPodEvictionPolicy
    if spec.HasField("unhealthyPodEvictionPolicy") and policy not in _POLICIES:
        causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return causes


def pod_disruption_budget_update(
    new: policy_v1.PodDisruptionBudget, old: policy_v1.PodDisruptionBudget
) -> Causes:
    """An update: all of it may change."""
    return object_meta_update(new.metadata, old.metadata) + pod_disruption_budget(new)


def pod_disruption_budget_status_update(
    new: policy_v1.PodDisruptionBudget, old: policy_v1.PodDisruptionBudget
) -> Causes:
    """Conditions, and counts that are not negative."""
    causes = object_meta_update(new.metadata, old.metadata)
    causes += conditions(new.status.conditions, "status.conditions")
    for name in _COUNTS:
        causes += non_negative(f"status.{name}", getattr(new.status, name))
    return causes
