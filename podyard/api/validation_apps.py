"""Validation of workloads: Deployment and ReplicaSet, and of Scale.

Counterpart: kubernetes pkg/apis/apps/validation, pkg/apis/autoscaling/validation.
"""

from __future__ import annotations

from typing import Any

from podyard.api import names, selectors
from podyard.api.errors import forbidden, invalid, not_supported, required
from podyard.api.types import IntOrString, PodTemplateSpec, apps_v1, autoscaling_v1
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    annotation_map,
    go_struct,
    label_selector,
    labels,
    non_negative,
    object_meta,
    object_meta_update,
)
from podyard.api.validation_pod import pod_spec

_STRATEGIES = ("Recreate", "RollingUpdate")


def deployment(obj: apps_v1.Deployment) -> Causes:
    """A deployment."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    causes += non_negative("spec.replicas", spec.replicas)
    causes += _selector(spec)
    causes += _template(spec.template, spec)
    causes += _strategy(spec.strategy)
    causes += non_negative("spec.minReadySeconds", spec.minReadySeconds)
    if spec.HasField("revisionHistoryLimit"):
        causes += non_negative("spec.revisionHistoryLimit", spec.revisionHistoryLimit)
    if spec.HasField("progressDeadlineSeconds"):
        deadline = spec.progressDeadlineSeconds
        causes += non_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= spec.minReadySeconds:
            detail = "must be greater than minReadySeconds"
            causes.append(invalid("spec.progressDeadlineSeconds", deadline, detail))
    return causes


def deployment_update(new: apps_v1.Deployment, old: apps_v1.Deployment) -> Causes:
    """An update: the selector stays."""
    return object_meta_update(new.metadata, old.metadata) + _selector_stays(new, old) + deployment(new)


def deployment_status_update(new: apps_v1.Deployment, old: apps_v1.Deployment) -> Causes:
    """Counts are whole and consistent; collisions never become fewer."""
    causes = object_meta_update(new.metadata, old.metadata)
    status = new.status
    for field in ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"):
        causes += non_negative(f"status.{field}", getattr(status, field))
    causes += non_negative("status.unavailableReplicas", status.unavailableReplicas)
    causes += _at_most(status, "replicas", ("updatedReplicas", "readyReplicas", "availableReplicas"))
    if status.availableReplicas > status.readyReplicas:
        detail = "cannot be greater than readyReplicas"
        causes.append(invalid("status.availableReplicas", status.availableReplicas, detail))
    if old.status.HasField("collisionCount") and (
        not status.HasField("collisionCount") or status.collisionCount < old.status.collisionCount
    ):
        value = status.collisionCount if status.HasField("collisionCount") else None
        causes.append(invalid("status.collisionCount", value, "cannot be decremented"))
    return causes


def replica_set(obj: apps_v1.ReplicaSet) -> Causes:
    """A replica set."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    causes += non_negative("spec.replicas", obj.spec.replicas)
    causes += non_negative("spec.minReadySeconds", obj.spec.minReadySeconds)
    return causes + _selector(obj.spec) + _template(obj.spec.template, obj.spec)


def replica_set_update(new: apps_v1.ReplicaSet, old: apps_v1.ReplicaSet) -> Causes:
    """An update: the selector stays."""
    return object_meta_update(new.metadata, old.metadata) + _selector_stays(new, old) + replica_set(new)


def replica_set_status_update(new: apps_v1.ReplicaSet, old: apps_v1.ReplicaSet) -> Causes:
    """Counts are whole and consistent."""
    causes = object_meta_update(new.metadata, old.metadata)
    parts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    for field in ("replicas", *parts, "observedGeneration"):
        causes += non_negative(f"status.{field}", getattr(new.status, field))
    return causes + _at_most(new.status, "replicas", parts)


def scale(obj: autoscaling_v1.Scale) -> Causes:
    """A wanted number of replicas."""
    return non_negative("spec.replicas", obj.spec.replicas)


def _selector(spec: Any) -> Causes:
    if not spec.HasField("selector"):
        return [required("spec.selector")]
    causes = label_selector(spec.selector, "spec.selector")
    if not spec.selector.matchLabels and not spec.selector.matchExpressions:
        causes.append(invalid("spec.selector", {}, "empty selector is invalid for deployment"))
    return causes


def _selector_stays(new: Any, old: Any) -> Causes:
    if new.spec.selector == old.spec.selector:
        return []
    return [invalid("spec.selector", go_struct(new.spec.selector), IMMUTABLE)]


def _template(template: PodTemplateSpec, spec: Any) -> Causes:
    causes: Causes = []
    try:
        selector = selectors.from_message(spec.selector if spec.HasField("selector") else None)
        if (
            spec.HasField("selector")
            and not selector.empty
            and not selector.matches(template.metadata.labels)
        ):
            detail = "`selector` does not match template `labels`"
            causes.append(invalid("spec.template.metadata.labels", dict(template.metadata.labels), detail))
    except selectors.SelectorError:
        pass  # said of the selector itself
    causes += labels(template.metadata.labels, "spec.template.labels")
    causes += annotation_map(template.metadata.annotations, "spec.template.annotations")
    causes += pod_spec(template.spec, "spec.template.spec", template=True)
    if template.spec.restartPolicy != "Always":
        causes.append(
            not_supported("spec.template.spec.restartPolicy", template.spec.restartPolicy, ["Always"])
        )
    if template.spec.HasField("activeDeadlineSeconds"):
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        causes.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))
    return causes


def _strategy(strategy: apps_v1.DeploymentStrategy) -> Causes:
    if strategy.type not in _STRATEGIES:
        return [not_supported("spec.strategy", strategy.type, _STRATEGIES)]
    rolling = strategy.HasField("rollingUpdate")
    if strategy.type == "Recreate":
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden("spec.strategy.rollingUpdate", detail)] if rolling else []
    if not rolling:
        detail = "this should be defaulted and never be nil"
        return [required("spec.strategy.rollingUpdate", detail)]
    path = "spec.strategy.rollingUpdate"
    update = strategy.rollingUpdate
    causes = int_or_percent(update.maxUnavailable, f"{path}.maxUnavailable", at_most_all=True)
    causes += int_or_percent(update.maxSurge, f"{path}.maxSurge", at_most_all=False)
    if not causes and _is_zero(update.maxUnavailable) and _is_zero(update.maxSurge):
        shown = _shown(update.maxUnavailable)
        causes.append(invalid(f"{path}.maxUnavailable", shown, "may not be 0 when `maxSurge` is 0"))
    return causes


def int_or_percent(value: IntOrString, path: str, *, at_most_all: bool) -> Causes:
    """A number or a percentage, not negative; with `at_most_all` not over 100 %."""
    if value.type == 0:
        return non_negative(path, value.intVal)
    text = value.strVal
    if not text.endswith("%") or not text[:-1].isdigit():
        detail = "a valid percent string must be a numeric string followed by an ending '%'"
        regex = "(e.g. '1%', or '93%', regex used for validation is '[0-9]+%')"
        return [invalid(path, text, f"{detail} {regex}")]
    if at_most_all and int(text[:-1]) > 100:
        return [invalid(path, text, "must not be greater than 100%")]
    return []


def _is_zero(value: IntOrString) -> bool:
    return value.intVal == 0 if value.type == 0 else int(value.strVal[:-1]) == 0


def _shown(value: IntOrString) -> Any:
    return value.intVal if value.type == 0 else value.strVal


def _at_most(status: Any, limit: str, fields: tuple[str, ...]) -> Causes:
    most = getattr(status, limit)
    return [
        invalid(f"status.{field}", getattr(status, field), f"cannot be greater than status.{limit}")
        for field in fields
        if getattr(status, field) > most
    ]
