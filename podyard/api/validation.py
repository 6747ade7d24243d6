"""Validation of whole objects, by message class: every error at once, in upstream's words.

`VALIDATE` checks a new object, `VALIDATE_UPDATE` an update (the new object too, and what may not
change). Facts: `tables/validation_limits.tsv`. Defaults, admission and preparation come before.

Counterpart: kubernetes pkg/apis/*/validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from podyard.api import (
    meta,
    names,
    validation_admission,
    validation_autoscaling,
    validation_batch,
    validation_certificates,
    validation_flowcontrol,
    validation_networking,
    validation_persistent,
    validation_quota,
    validation_rbac,
    validation_resource,
    validation_reviews,
    validation_storage,
    validation_workloads,
)
from podyard.api.errors import forbidden, invalid, not_supported, required, too_long
from podyard.api.types import (
    ConfigMap,
    Endpoints,
    EndpointSlice,
    Event,
    EventsV1Event,
    Lease,
    Message,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Secret,
    Service,
    ServiceAccount,
    StatusCause,
    apps_v1,
    policy_v1,
)
from podyard.api.validation_apps import (
    deployment,
    deployment_status_update,
    deployment_update,
    replica_set,
    replica_set_status_update,
    replica_set_update,
)
from podyard.api.validation_event import event, event_update, event_v1, event_v1_update
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    Rules,
    each,
    finalizer_name,
    immutable,
    non_negative,
    object_meta,
    object_meta_update,
)
from podyard.api.validation_node import node, node_update
from podyard.api.validation_pod import pod, pod_status_update, pod_update
from podyard.api.validation_policy import (
    pod_disruption_budget,
    pod_disruption_budget_status_update,
    pod_disruption_budget_update,
)
from podyard.api.validation_service import (
    endpoint_slice,
    endpoint_slice_update,
    endpoints,
    endpoints_update,
    service,
    service_status_update,
    service_update,
)

__all__ = [
    "RULES",
    "VALIDATE",
    "VALIDATE_UPDATE",
    "deployment_status_update",
    "namespace_finalize_update",
    "namespace_status_update",
    "node_update",
    "nothing",
    "nothing_new",
    "pod_disruption_budget_status_update",
    "pod_status_update",
    "replica_set_status_update",
    "service_status_update",
]

MAX_DATA_BYTES = 1024 * 1024
MAX_USER_PRIORITY = 1_000_000_000
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
LEASE_STRATEGIES = ("OldestEmulationVersion",)


def nothing(obj: Any) -> list[StatusCause]:
    """For kinds without rules."""
    return []


def nothing_new(new: Any, old: Any) -> list[StatusCause]:
    """For kinds without rules about changes."""
    return []


def _named(obj: Any) -> Causes:
    """Metadata of a namespaced kind whose names are subdomains."""
    return object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)


def config_map(obj: ConfigMap) -> Causes:
    """Keys, and the size of all data."""
    causes = _named(obj)
    size = 0
    for key, text in sorted(obj.data.items()):
        causes += each(f"data[{key}]", key, names.config_key_problems(key))
        if key in obj.binaryData:
            causes.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(text.encode())
    for key, data in sorted(obj.binaryData.items()):
        causes += each(f"binaryData[{key}]", key, names.config_key_problems(key))
        size += len(data)
    if size > MAX_DATA_BYTES:
        causes.append(too_long("[]", MAX_DATA_BYTES))
    return causes


def config_map_update(new: ConfigMap, old: ConfigMap) -> Causes:
    """An update; immutable ones stay as they are."""
    causes = object_meta_update(new.metadata, old.metadata)
    causes += _immutable_data(new, old, ("data", "binaryData"))
    return causes + config_map(new)


def _immutable_data(new: Any, old: Any, parts: tuple[str, ...]) -> Causes:
    if not old.immutable:
        return []
    causes: Causes = []
    if not new.immutable:
        causes.append(forbidden("immutable", "field is immutable when `immutable` is set"))
    for name in parts:
        if dict(getattr(new, name)) != dict(getattr(old, name)):
            causes.append(forbidden(name, "field is immutable when `immutable` is set"))
    return causes


_DOCKER_KEYS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"


def secret(obj: Secret) -> Causes:
    """Keys, size, and what the type asks for."""
    causes = _named(obj)
    size = 0
    for key, data in sorted(obj.data.items()):
        causes += each(f"data[{key}]", key, names.config_key_problems(key))
        size += len(data)
    if size > MAX_DATA_BYTES:
        causes.append(too_long("data", MAX_DATA_BYTES))
    return causes + _secret_type(obj)


def _secret_type(obj: Secret) -> Causes:
    kind, data = obj.type, obj.data
    if kind == "kubernetes.io/service-account-token":
        if not obj.metadata.annotations.get(_SERVICE_ACCOUNT_NAME):
            return [required(f"metadata.annotations[{_SERVICE_ACCOUNT_NAME}]")]
    elif kind in _DOCKER_KEYS:
        key = _DOCKER_KEYS[kind]
        if key not in data:
            return [required(f"data[{key}]")]
        try:
            is_object = isinstance(orjson.loads(data[key]), dict)
        except orjson.JSONDecodeError:
            is_object = False
        if not is_object:
            return [invalid(f"data[{key}]", "<secret contents redacted>", "invalid JSON object")]
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            return [required("data[username]"), required("data[password]")]
    elif kind == "kubernetes.io/ssh-auth":
        if not data.get("ssh-privatekey"):
            return [required("data[ssh-privatekey]")]
    elif kind == "kubernetes.io/tls":
        return [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
    return []


def secret_update(new: Secret, old: Secret) -> Causes:
    """An update: the type stays."""
    causes = object_meta_update(new.metadata, old.metadata)
    causes += immutable("type", new.type, old.type)
    causes += _immutable_data(new, old, ("data",))
    return causes + secret(new)


def service_account(obj: ServiceAccount) -> Causes:
    """Only metadata has rules."""
    return _named(obj)


def service_account_update(new: ServiceAccount, old: ServiceAccount) -> Causes:
    """An update of a service account."""
    return object_meta_update(new.metadata, old.metadata) + service_account(new)


def namespace(obj: Namespace) -> Causes:
    """A namespace: names are labels, finalizers well-formed."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_label_problems)
    for name in obj.spec.finalizers:
        causes += finalizer_name(name, "spec.finalizers")
    return causes


def namespace_update(new: Namespace, old: Namespace) -> Causes:
    """An update: only metadata changes here."""
    return object_meta_update(new.metadata, old.metadata)


def namespace_status_update(new: Namespace, old: Namespace) -> Causes:
    """Active without a deletion, Terminating with one."""
    causes = object_meta_update(new.metadata, old.metadata)
    phase = new.status.phase
    if meta.is_terminating(new.metadata):
        if phase != "Terminating":
            detail = 'may only be "Terminating" if `deletionTimestamp` is not empty'
            causes.append(invalid("status.Phase", phase, detail))
    elif phase != "Active":
        detail = 'may only be "Active" if `deletionTimestamp` is empty'
        causes.append(invalid("status.Phase", phase, detail))
    return causes


def namespace_finalize_update(new: Namespace, old: Namespace) -> Causes:
    """Finalizers only."""
    causes = object_meta_update(new.metadata, old.metadata)
    for index, name in enumerate(new.spec.finalizers):
        causes += finalizer_name(name, f"spec.finalizers[{index}]")
    return causes


def lease(obj: Lease) -> Causes:
    """Durations and counts; strategies of coordinated election."""
    causes = _named(obj)
    spec = obj.spec
    if spec.HasField("leaseDurationSeconds") and spec.leaseDurationSeconds <= 0:
        detail = "must be greater than 0"
        causes.append(invalid("spec.leaseDurationSeconds", spec.leaseDurationSeconds, detail))
    if spec.HasField("leaseTransitions"):
        causes += non_negative("spec.leaseTransitions", spec.leaseTransitions)
    if spec.HasField("strategy"):
        known = spec.strategy in LEASE_STRATEGIES or "/" in spec.strategy
        if not known:
            causes.append(not_supported("spec.strategy", spec.strategy, LEASE_STRATEGIES))
    if spec.preferredHolder and not spec.strategy:
        detail = "may only be specified when `strategy` is defined"
        causes.append(forbidden("spec.preferredHolder", detail))
    return causes


def lease_update(new: Lease, old: Lease) -> Causes:
    """An update of a lease."""
    return object_meta_update(new.metadata, old.metadata) + lease(new)


def priority_class(obj: PriorityClass) -> Causes:
    """Names beginning with `system-` and values over a billion are the system's."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    name = obj.metadata.name
    if name.startswith("system-"):
        if SYSTEM_PRIORITIES.get(name) != obj.value or obj.globalDefault:
            why = f"{name} is not a known system priority class"
            if name in SYSTEM_PRIORITIES:
                why = f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
            detail = (
                f"priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            )
            causes.append(forbidden("metadata.name", detail))
    elif obj.value > MAX_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        causes.append(forbidden("value", detail))
    allowed = ("Never", "PreemptLowerPriority")
    if obj.HasField("preemptionPolicy") and obj.preemptionPolicy not in allowed:
        causes.append(not_supported("preemptionPolicy", obj.preemptionPolicy, allowed))
    return causes


def priority_class_update(new: PriorityClass, old: PriorityClass) -> Causes:
    """An update: value and policy stay."""
    causes = object_meta_update(new.metadata, old.metadata)
    if new.value != old.value:
        causes.append(forbidden("value", "may not be changed in an update."))
    if new.preemptionPolicy != old.preemptionPolicy:
        causes.append(invalid("preemptionPolicy", new.preemptionPolicy, IMMUTABLE))
    return causes


# Kinds whose rules stand together in one row of their own module.
RULES: Mapping[type[Message], Rules] = {
    **validation_admission.RULES,
    **validation_autoscaling.RULES,
    **validation_batch.RULES,
    **validation_certificates.RULES,
    **validation_flowcontrol.RULES,
    **validation_networking.RULES,
    **validation_persistent.RULES,
    **validation_quota.RULES,
    **validation_rbac.RULES,
    **validation_resource.RULES,
    **validation_reviews.RULES,
    **validation_storage.RULES,
    **validation_workloads.RULES,
}
VALIDATE: Mapping[type[Message], Callable[[Any], list[StatusCause]]] = {
    **{message: rules.create for message, rules in RULES.items()},
    apps_v1.Deployment: deployment,
    apps_v1.ReplicaSet: replica_set,
    ConfigMap: config_map,
    Endpoints: endpoints,
    EndpointSlice: endpoint_slice,
    Event: event,
    EventsV1Event: event_v1,
    Lease: lease,
    Namespace: namespace,
    Node: node,
    Pod: pod,
    policy_v1.PodDisruptionBudget: pod_disruption_budget,
    PriorityClass: priority_class,
    Secret: secret,
    Service: service,
    ServiceAccount: service_account,
}
VALIDATE_UPDATE: Mapping[type[Message], Callable[[Any, Any], list[StatusCause]]] = {
    **{message: rules.update for message, rules in RULES.items()},
    apps_v1.Deployment: deployment_update,
    apps_v1.ReplicaSet: replica_set_update,
    ConfigMap: config_map_update,
    Endpoints: endpoints_update,
    EndpointSlice: endpoint_slice_update,
    Event: event_update,
    EventsV1Event: event_v1_update,
    Lease: lease_update,
    Namespace: namespace_update,
    Node: node_update,
    Pod: pod_update,
    policy_v1.PodDisruptionBudget: pod_disruption_budget_update,
    PriorityClass: priority_class_update,
    Secret: secret_update,
    Service: service_update,
    ServiceAccount: service_account_update,
}
