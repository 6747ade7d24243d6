"""Validation of workloads: Deployment and ReplicaSet, and of Scale.

Counterpart: kubernetes pkg/apis/apps/validation, pkg/apis/autoscaling/validation.
"""

from __future__ import annotations

from typing import Any

from podyard.api import codec, names, selectors
from podyard.api.errors import forbidden, invalid, not_supported, required
from podyard.api.quoting import NIL
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
    causes += _selector_and_template(spec)
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
    return object_meta_update(new.metadata, old.metadata) + deployment(new) + selector_stays(new, old)


def deployment_status_update(new: apps_v1.Deployment, old: apps_v1.Deployment) -> Causes:
    """Counts are whole and consistent; collisions never become fewer."""
    causes = object_meta_update(new.metadata, old.metadata)
    status = new.status
    for field in ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"):
        causes += non_negative(f"status.{field}", getattr(status, field))
    causes += non_negative("status.unavailableReplicas", status.unavailableReplicas)
    causes += at_most(status, "replicas", ("updatedReplicas", "readyReplicas", "availableReplicas"))
    if status.availableReplicas > status.readyReplicas:
        detail = "cannot be greater than readyReplicas"
        causes.append(invalid("status.availableReplicas", status.availableReplicas, detail))
    return causes + collisions_grow(new, old)


def collisions_grow(new: Any, old: Any) -> Causes:
    """`status.collisionCount` never becomes less."""
    status = new.status
    if not old.status.HasField("collisionCount") or (
        status.HasField("collisionCount") and status.collisionCount >= old.status.collisionCount
    ):
        return []
    value = status.collisionCount if status.HasField("collisionCount") else None
    return [invalid("status.collisionCount", value, "cannot be decremented")]


def replica_set(obj: apps_v1.ReplicaSet) -> Causes:
    """A replica set."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    causes += non_negative("spec.replicas", obj.spec.replicas)
    causes += non_negative("spec.minReadySeconds", obj.spec.minReadySeconds)
    return causes + _selector_and_template(obj.spec)


def replica_set_update(new: apps_v1.ReplicaSet, old: apps_v1.ReplicaSet) -> Causes:
    """An update: the selector stays."""
    return object_meta_update(new.metadata, old.metadata) + replica_set(new) + selector_stays(new, old)


def replica_set_status_update(new: apps_v1.ReplicaSet, old: apps_v1.ReplicaSet) -> Causes:
    """Counts are whole and consistent."""
    causes = object_meta_update(new.metadata, old.metadata)
    parts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    for field in ("replicas", *parts, "observedGeneration"):
        causes += non_negative(f"status.{field}", getattr(new.status, field))
    return causes + at_most(new.status, "replicas", parts)


def scale(obj: autoscaling_v1.Scale) -> Causes:
    """A wanted number of replicas."""
    return non_negative("spec.replicas", obj.spec.replicas)


def selector_and_template(spec: Any, kind: str, *, unparsable: str = "invalid label selector") -> Causes:
    """A workload's selector, and its template where the selector can be read.

    Args:
        kind: as the errors call it.
        unparsable: what is said of a selector that cannot be.
    """
    path = "spec.selector"
    causes = selector_given(spec.selector, kind) if spec.HasField("selector") else [required(path)]
    if not readable(spec.selector):
        return [*causes, invalid(path, codec.to_dict(spec.selector), unparsable)]
    return causes + selects_template(spec, spec.template)


def selector_given(selector: Any, kind: str) -> Causes:
    """A selector that is there, and may not be empty."""
    causes = label_selector(selector, "spec.selector")
    if not selector.matchLabels and not selector.matchExpressions:
        causes.append(invalid("spec.selector", {}, f"empty selector is invalid for {kind}"))
    return causes


def selector_stays(new: Any, old: Any) -> Causes:
    """`spec.selector` may not change."""
    if new.spec.selector == old.spec.selector:
        return []
    return [invalid("spec.selector", go_struct(new.spec.selector), IMMUTABLE)]


def _selector_and_template(spec: Any) -> Causes:
    causes = selector_and_template(spec, "deployment")
    if readable(spec.selector):
        causes += pod_template(spec.template, "spec.template") + runs_forever(spec.template, "ReplicaSet")
    return causes


def readable(selector: Any) -> bool:
    """Whether a selector can be made of the message; upstream checks no template against another."""
    return not label_selector(selector, "")


def selects_template(spec: Any, template: PodTemplateSpec, path: str = "spec.template") -> Causes:
    """A selector that is not empty must select the pods of the template; none selects nothing."""
    if not readable(spec.selector):
        return []  # said of the selector itself
    made = selectors.from_message(spec.selector if spec.HasField("selector") else None)
    if made.empty or made.matches(template.metadata.labels):
        return []
    detail = "`selector` does not match template `labels`"
    shown = dict(template.metadata.labels) or NIL
    return [invalid(f"{path}.metadata.labels", shown, detail)]


def pod_template(template: PodTemplateSpec, path: str) -> Causes:
    """A template of pods, whoever makes them."""
    causes = labels(template.metadata.labels, f"{path}.labels")
    causes += annotation_map(template.metadata.annotations, f"{path}.annotations")
    return causes + pod_spec(template.spec, f"{path}.spec", template=True)


def runs_forever(template: PodTemplateSpec, kind: str, path: str = "spec.template") -> Causes:
    """A template of pods that are not to end by themselves."""
    causes: Causes = []
    if template.spec.restartPolicy != "Always":
        at = f"{path}.spec.restartPolicy"
        causes.append(not_supported(at, template.spec.restartPolicy, ["Always"]))
    if template.spec.HasField("activeDeadlineSeconds"):
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        causes.append(forbidden(f"{path}.spec.activeDeadlineSeconds", detail))
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
    if not causes and is_zero(update.maxUnavailable) and is_zero(update.maxSurge):
        shown = shown_amount(update.maxUnavailable)
        causes.append(invalid(f"{path}.maxUnavailable", shown, "may not be 0 when `maxSurge` is 0"))
    return causes


def int_or_percent(value: IntOrString, path: str, *, at_most_all: bool) -> Causes:
    """A number or a percentage, not negative; with `at_most_all` not over 100 %."""
    if value.type == 0:
        return non_negative(path, value.intVal)
    text = value.strVal
    if not text.endswith("%") or not text[:-1].isdigit():
        detail = "a valid percent string must be a numeric string followed by an ending '%'"
        regex = "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        return [invalid(path, text, f"{detail} {regex}")]
    if at_most_all and int(text[:-1]) > 100:
        return [invalid(path, text, "must not be greater than 100%")]
    return []


def is_zero(value: IntOrString) -> bool:
    """Whether a valid number or percentage is 0."""
    return value.intVal == 0 if value.type == 0 else int(value.strVal[:-1]) == 0


def shown_amount(value: IntOrString) -> Any:
    """A number or percentage as errors show it."""
    return value.intVal if value.type == 0 else value.strVal


def at_most(status: Any, limit: str, fields: tuple[str, ...]) -> Causes:
    """Counts of a status that may not be over another one."""
    most = getattr(status, limit)
    return [
        invalid(f"status.{field}", getattr(status, field), f"cannot be greater than status.{limit}")
        for field in fields
        if getattr(status, field) > most
    ]
