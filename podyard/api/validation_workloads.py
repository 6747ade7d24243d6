"""Validation of DaemonSets, StatefulSets, ControllerRevisions, ReplicationControllers and PodTemplates.

Counterpart: kubernetes pkg/apis/apps/validation, pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from podyard.api import codec, names, selectors
from podyard.api.errors import forbidden, invalid, not_supported, required
from podyard.api.types import Message, PodTemplateSpec, apps_v1, copy_of, core_v1
from podyard.api.validation_apps import (
    at_most,
    collisions_grow,
    int_or_percent,
    is_zero,
    pod_template,
    readable,
    runs_forever,
    selector_and_template,
    selector_stays,
    selects_template,
    shown_amount,
)
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    Rules,
    each,
    go_struct,
    label_selector,
    non_negative,
    object_meta,
    rules,
)
from podyard.api.validation_persistent import claim_spec

_RETENTION = ("Delete", "Retain")
_DAEMON_COUNTS = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
)
# What may change in a StatefulSet's spec.
_STATEFUL_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _named(obj: Any) -> Causes:
    return object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)


def daemon_set(obj: apps_v1.DaemonSet) -> Causes:
    """A daemon set."""
    causes, spec = _named(obj), obj.spec
    causes += label_selector(spec.selector, "spec.selector")
    causes += selects_template(spec, spec.template)
    if spec.HasField("selector") and not (spec.selector.matchLabels or spec.selector.matchExpressions):
        causes.append(invalid("spec.selector", {}, "empty selector is invalid for daemonset"))
    causes += pod_template(spec.template, "spec.template")
    causes += runs_forever(spec.template, "DaemonSet")
    causes += non_negative("spec.minReadySeconds", spec.minReadySeconds)
    causes += _daemon_strategy(spec.updateStrategy, "spec.updateStrategy")
    return causes + non_negative("spec.revisionHistoryLimit", spec.revisionHistoryLimit)


def _daemon_strategy(strategy: apps_v1.DaemonSetUpdateStrategy, path: str) -> Causes:
    if strategy.type == "OnDelete":
        return []
    if strategy.type != "RollingUpdate":
        return [not_supported(path, go_struct(strategy), ("RollingUpdate", "OnDelete"))]
    path = f"{path}.rollingUpdate"
    if not strategy.HasField("rollingUpdate"):
        return [required(path)]
    rolling = strategy.rollingUpdate
    causes = int_or_percent(rolling.maxUnavailable, f"{path}.maxUnavailable", at_most_all=True)
    causes += int_or_percent(rolling.maxSurge, f"{path}.maxSurge", at_most_all=True)
    if causes:
        return causes
    unavailable, surge = not is_zero(rolling.maxUnavailable), not is_zero(rolling.maxSurge)
    if unavailable and surge:
        detail = "may not be set when maxUnavailable is non-zero"
        return [invalid(f"{path}.maxSurge", shown_amount(rolling.maxSurge), detail)]
    if not unavailable and not surge:
        return [required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")]
    return []


def _daemon_status(new: apps_v1.DaemonSet, old: apps_v1.DaemonSet) -> Causes:
    causes: Causes = []
    for name in _DAEMON_COUNTS:
        causes += non_negative(f"status.{name}", getattr(new.status, name))
    return causes + collisions_grow(new, old)


def stateful_set(obj: apps_v1.StatefulSet) -> Causes:
    """A new stateful set."""
    causes = _stateful_set(obj)
    spec = obj.spec
    if spec.serviceName:
        causes += each("spec.serviceName", spec.serviceName, names.dns_label_problems(spec.serviceName))
    for index, claim in enumerate(spec.volumeClaimTemplates):
        causes += claim_spec(claim.spec, f"spec.volumeClaimTemplates[{index}].spec")
    return causes


def _stateful_set(obj: apps_v1.StatefulSet) -> Causes:
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_label_problems)
    spec = obj.spec
    policy = spec.podManagementPolicy
    if not policy:
        causes.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        detail = "must be 'OrderedReady' or 'Parallel'"
        causes.append(invalid("spec.podManagementPolicy", policy, detail))
    causes += _stateful_strategy(spec.updateStrategy, "spec.updateStrategy")
    path = "spec.persistentVolumeClaimRetentionPolicy"
    if spec.HasField("persistentVolumeClaimRetentionPolicy"):
        for name in ("whenDeleted", "whenScaled"):
            value = getattr(spec.persistentVolumeClaimRetentionPolicy, name)
            if value not in _RETENTION:
                causes.append(not_supported(f"{path}.{name}", value, _RETENTION))
    causes += non_negative("spec.replicas", spec.replicas)
    causes += non_negative("spec.minReadySeconds", spec.minReadySeconds)
    causes += non_negative("spec.ordinals.start", spec.ordinals.start)
    causes += selector_and_template(spec, "statefulset", unparsable="")
    if readable(spec.selector):
        causes += pod_template(_with_claims(spec), "spec.template")
    return causes + runs_forever(spec.template, "StatefulSet")


def _with_claims(spec: Any) -> PodTemplateSpec:
    """The template as its pods will be: with a volume for each claim, which containers may mount."""
    template: PodTemplateSpec = copy_of(spec.template)
    known = {volume.name for volume in template.spec.volumes}
    for claim in spec.volumeClaimTemplates:
        if claim.metadata.name and claim.metadata.name not in known:
            volume = template.spec.volumes.add(name=claim.metadata.name)
            volume.volumeSource.emptyDir.SetInParent()
    return template


def _stateful_strategy(strategy: apps_v1.StatefulSetUpdateStrategy, path: str) -> Causes:
    rolling_path = f"{path}.rollingUpdate"
    if not strategy.type:
        return [required(path)]
    if strategy.type == "OnDelete":
        if not strategy.HasField("rollingUpdate"):
            return []
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        return [invalid(rolling_path, go_struct(strategy.rollingUpdate), detail)]
    if strategy.type != "RollingUpdate":
        return [invalid(path, go_struct(strategy), "must be 'RollingUpdate' or 'OnDelete'")]
    rolling = strategy.rollingUpdate
    causes = non_negative(f"{rolling_path}.partition", rolling.partition)
    if rolling.HasField("maxUnavailable"):
        at = f"{rolling_path}.maxUnavailable"
        found = int_or_percent(rolling.maxUnavailable, at, at_most_all=True)
        if not found and is_zero(rolling.maxUnavailable):
            found = [invalid(at, shown_amount(rolling.maxUnavailable), "cannot be 0")]
        causes += found
    return causes


def _stateful_stays(new: apps_v1.StatefulSet, old: apps_v1.StatefulSet) -> Causes:
    changed = copy_of(new.spec)
    for name in _STATEFUL_MUTABLE:
        changed.ClearField(name)
        if old.spec.DESCRIPTOR.fields_by_name[name].message_type is None:
            if old.spec.HasField(name):
                setattr(changed, name, getattr(old.spec, name))
        elif old.spec.HasField(name):
            getattr(changed, name).CopyFrom(getattr(old.spec, name))
    if codec.same(changed, old.spec):
        return []
    listed = ", ".join(f"'{name}'" for name in _STATEFUL_MUTABLE[:-1])
    allowed = f"{listed} and '{_STATEFUL_MUTABLE[-1]}'"
    detail = f"updates to statefulset spec for fields other than {allowed} are forbidden"
    return [forbidden("spec", detail)]


def _stateful_status(new: apps_v1.StatefulSet, old: apps_v1.StatefulSet) -> Causes:
    causes: Causes = []
    parts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    for name in ("replicas", *parts):
        causes += non_negative(f"status.{name}", getattr(new.status, name))
    causes += non_negative("status.observedGeneration", new.status.observedGeneration)
    causes += collisions_grow(new, old)
    causes += at_most(new.status, "replicas", parts)
    if new.status.availableReplicas > new.status.readyReplicas:
        detail = "cannot be greater than status.readyReplicas"
        causes.append(invalid("status.availableReplicas", new.status.availableReplicas, detail))
    return causes


def controller_revision(obj: apps_v1.ControllerRevision) -> Causes:
    """Data that some controller wrote: any JSON object."""
    causes = _named(obj)
    raw = obj.data.raw
    if not raw or raw == b"null":
        causes.append(required("data", "data is mandatory"))
    else:
        try:
            is_object = isinstance(orjson.loads(raw), dict)
        except orjson.JSONDecodeError:
            is_object = False
        if not is_object:
            causes.append(invalid("data", raw.decode(errors="replace"), "must be a valid JSON object"))
    return causes + non_negative("revision", obj.revision)


def _data_stays(new: apps_v1.ControllerRevision, old: apps_v1.ControllerRevision) -> Causes:
    if new.data.raw == old.data.raw:
        return []
    return [invalid("data", new.data.raw.decode(errors="replace"), IMMUTABLE)]


def replication_controller(obj: core_v1.ReplicationController) -> Causes:
    """A replication controller: its selector is a plain map."""
    causes, spec = _named(obj), obj.spec
    causes += non_negative("spec.minReadySeconds", spec.minReadySeconds)
    if not spec.selector:
        causes.append(required("spec.selector"))
    causes += non_negative("spec.replicas", spec.replicas)
    if not spec.HasField("template"):
        return [*causes, required("spec.template")]
    made = selectors.from_labels(spec.selector)
    if spec.selector and not made.matches(spec.template.metadata.labels):
        detail = "`selector` does not match template `labels`"
        shown = dict(spec.template.metadata.labels)
        causes.append(invalid("spec.template.metadata.labels", shown, detail))
    return [
        *causes,
        *pod_template(spec.template, "spec.template"),
        *runs_forever(spec.template, "ReplicationController"),
    ]


def _replication_status(new: core_v1.ReplicationController, old: core_v1.ReplicationController) -> Causes:
    causes: Causes = []
    parts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    for name in ("replicas", *parts, "observedGeneration"):
        causes += non_negative(f"status.{name}", getattr(new.status, name))
    return causes + at_most(new.status, "replicas", parts)


def stored_template(obj: core_v1.PodTemplate) -> Causes:
    """A template by itself."""
    return _named(obj) + pod_template(obj.template, "template")


RULES: Mapping[type[Message], Rules] = {
    apps_v1.DaemonSet: rules(daemon_set, last=selector_stays, status=_daemon_status),
    apps_v1.StatefulSet: Rules(
        stateful_set,
        rules(_stateful_set, _stateful_stays).update,
        rules(_stateful_set, status=_stateful_status).parts,
    ),
    apps_v1.ControllerRevision: rules(controller_revision, _data_stays),
    core_v1.ReplicationController: rules(replication_controller, status=_replication_status),
    core_v1.PodTemplate: rules(stored_template),
}
