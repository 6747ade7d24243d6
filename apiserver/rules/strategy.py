"""What the server does with an object of each kind before it is stored: one row per kind.

The registry's verbs call these hooks in upstream's order: defaults, admission, `prepare_*`,
`validate_*`. `strategy_of(row)` gives a kind's row; what a kind does not name is the general rule.
Functions are pure but for the object they are given to change, which is always the new one.

Counterpart: kubernetes pkg/registry/*/strategy.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apiserver.rules import (
    certificates,
    deletion,
    jobs,
    metadata,
    namespaces,
    nodes,
    pods,
    services,
    storage,
    workloads,
)
from apiserver.rules.deletion import DeleteOutcome
from podyard.api import validation
from podyard.api.resources import Resource
from podyard.api.types import (
    EndpointSlice,
    Message,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Service,
    StatusCause,
    admissionregistration_v1,
    apps_v1,
    autoscaling_v1,
    autoscaling_v2,
    batch_v1,
    certificates_v1,
    core_v1,
    flowcontrol_v1,
    meta_v1,
    networking_v1,
    policy_v1,
    resource_v1,
    storage_v1,
)

Causes = list[StatusCause]
Prepare = Callable[[Any], None]
PrepareUpdate = Callable[[Any, Any], None]
ValidateUpdate = Callable[[Any, Any], Causes]


def _nothing(obj: Any) -> None:
    """Nothing to prepare."""


def _nothing_new(new: Any, old: Any) -> None:
    """Nothing to carry over."""


def _no_stamp(new: Any, old: Any, now_s: float) -> None:
    """Kinds whose times others set."""


def _at_once(obj: Any, options: meta_v1.DeleteOptions, now_s: float) -> DeleteOutcome:
    """Kinds without graceful deletion."""
    return DeleteOutcome.NOW


@dataclass(frozen=True, slots=True)
class Part:
    """An update through a subresource (`status`, `finalize`)."""

    prepare: PrepareUpdate
    validate: ValidateUpdate


@dataclass(frozen=True, slots=True)
class Strategy:
    """Hooks of one kind.

    Attributes:
        prepare_create: resets what clients may not set (status), begins the generation.
        prepare_update: keeps the stored status, counts the generation.
        parts: updates through subresources.
        delete: the first step of a deletion; may change the object.
        delete_on_update: whether an update lets an object that is being deleted go.
        stamp: sets times that the server keeps; after the other preparation, old is None on a create.
    """

    prepare_create: Prepare = _nothing
    prepare_update: PrepareUpdate = _nothing_new
    parts: Mapping[str, Part] = field(default_factory=dict)
    delete: Callable[[Any, meta_v1.DeleteOptions, float], DeleteOutcome] = _at_once
    delete_on_update: Callable[[Any, Any], bool] = deletion.should_delete_on_update
    stamp: Callable[[Any, Any, float], None] = _no_stamp


def _parts(message: type[Message], prepare: PrepareUpdate = metadata.keep_spec) -> dict[str, Part]:
    """Updates of the status, which leave the spec."""
    return {
        name: Part(prepare, check)
        for name, check in validation.RULES[message].parts.items()
        if name == "status"
    }


def _workload(message: type[Message], **more: Any) -> Strategy:
    """Status apart from the spec, whose versions are counted."""
    return Strategy(
        prepare_create=more.pop("prepare_create", workloads.prepare_create),
        prepare_update=more.pop("prepare_update", workloads.prepare_update),
        parts=_parts(message),
        **more,
    )


def _with_status(message: type[Message], **more: Any) -> Strategy:
    """Status apart from the spec, without a generation."""
    return Strategy(
        prepare_create=more.pop("prepare_create", metadata.clear_status),
        prepare_update=more.pop("prepare_update", metadata.keep_status),
        parts=_parts(message),
        **more,
    )


_csr_rules = validation.RULES[certificates_v1.CertificateSigningRequest].parts
_SPEC = metadata.counting("spec")
_WEBHOOKS = metadata.counting("Webhooks")
_COUNTED = Strategy(prepare_create=metadata.first_generation, prepare_update=_SPEC)
_HOOKS = Strategy(prepare_create=metadata.first_generation, prepare_update=_WEBHOOKS)

STRATEGIES: Mapping[type[Message], Strategy] = {
    **dict.fromkeys(
        (
            admissionregistration_v1.MutatingAdmissionPolicy,
            admissionregistration_v1.MutatingAdmissionPolicyBinding,
            admissionregistration_v1.ValidatingAdmissionPolicyBinding,
            networking_v1.IngressClass,
            networking_v1.NetworkPolicy,
            resource_v1.DeviceClass,
            storage_v1.CSIDriver,
        ),
        _COUNTED,
    ),
    **dict.fromkeys(
        (
            admissionregistration_v1.MutatingWebhookConfiguration,
            admissionregistration_v1.ValidatingWebhookConfiguration,
        ),
        _HOOKS,
    ),
    **{
        message: _workload(message)
        for message in (
            admissionregistration_v1.ValidatingAdmissionPolicy,
            apps_v1.StatefulSet,
            core_v1.ReplicationController,
            flowcontrol_v1.FlowSchema,
            flowcontrol_v1.PriorityLevelConfiguration,
            networking_v1.Ingress,
        )
    },
    **{
        message: _with_status(message)
        for message in (
            autoscaling_v1.HorizontalPodAutoscaler,
            autoscaling_v2.HorizontalPodAutoscaler,
            core_v1.ResourceQuota,
            networking_v1.ServiceCIDR,
            resource_v1.ResourceClaim,
            storage_v1.VolumeAttachment,
        )
    },
    apps_v1.DaemonSet: _workload(
        apps_v1.DaemonSet,
        prepare_create=workloads.prepare_daemon_set,
        prepare_update=workloads.prepare_daemon_set_update,
    ),
    batch_v1.CronJob: _workload(batch_v1.CronJob),
    batch_v1.Job: _workload(batch_v1.Job, prepare_create=jobs.prepare_create),
    certificates_v1.CertificateSigningRequest: Strategy(
        prepare_create=certificates.prepare_create,
        prepare_update=certificates.prepare_update,
        parts={
            "status": Part(certificates.prepare_status, _csr_rules["status"]),
            "approval": Part(certificates.prepare_approval, _csr_rules["approval"]),
        },
        stamp=certificates.stamp,
    ),
    core_v1.PersistentVolume: _with_status(
        core_v1.PersistentVolume,
        prepare_create=storage.prepare_volume,
        prepare_update=metadata.keep_status,
        stamp=storage.stamp_phase,
    ),
    core_v1.PersistentVolumeClaim: _with_status(
        core_v1.PersistentVolumeClaim,
        prepare_create=storage.prepare_claim,
        prepare_update=storage.prepare_claim_update,
    ),
    core_v1.PodTemplate: Strategy(
        prepare_create=metadata.first_generation, prepare_update=metadata.counting("template")
    ),
    resource_v1.ResourceSlice: Strategy(
        prepare_create=metadata.first_generation, prepare_update=_SPEC, stamp=storage.stamp_taints
    ),
    apps_v1.Deployment: Strategy(
        prepare_create=workloads.prepare_create,
        prepare_update=workloads.prepare_deployment_update,
        parts={"status": Part(workloads.prepare_status, validation.deployment_status_update)},
    ),
    apps_v1.ReplicaSet: Strategy(
        prepare_create=workloads.prepare_create,
        prepare_update=workloads.prepare_update,
        parts={"status": Part(workloads.prepare_status, validation.replica_set_status_update)},
    ),
    EndpointSlice: Strategy(
        prepare_create=metadata.first_generation, prepare_update=metadata.count_body_generation
    ),
    Namespace: Strategy(
        prepare_create=namespaces.prepare_create,
        prepare_update=namespaces.prepare_update,
        parts={
            "status": Part(namespaces.prepare_status, validation.namespace_status_update),
            "finalize": Part(namespaces.prepare_finalize, validation.namespace_finalize_update),
        },
        delete=namespaces.delete,
        delete_on_update=namespaces.delete_on_update,
    ),
    Node: Strategy(
        prepare_update=nodes.prepare_update,
        parts={"status": Part(nodes.prepare_status, validation.node_update)},
    ),
    Pod: Strategy(
        prepare_create=pods.prepare_create,
        prepare_update=pods.prepare_update,
        parts={"status": Part(pods.prepare_status, validation.pod_status_update)},
        delete=pods.delete,
    ),
    policy_v1.PodDisruptionBudget: Strategy(
        prepare_create=workloads.prepare_create,
        prepare_update=workloads.prepare_update,
        parts={"status": Part(metadata.keep_spec, validation.pod_disruption_budget_status_update)},
    ),
    PriorityClass: Strategy(prepare_create=metadata.first_generation),
    Service: Strategy(
        prepare_create=services.prepare_create,
        prepare_update=services.prepare_update,
        parts={"status": Part(services.prepare_status, validation.service_status_update)},
    ),
}
_GENERAL = Strategy()


def strategy_of(row: Resource) -> Strategy:
    """The hooks of a kind."""
    return STRATEGIES.get(row.message, _GENERAL)


def prepare_create(row: Resource, obj: Any, now_s: float) -> None:
    """Step before validation of a create; `obj` is changed."""
    strategy = strategy_of(row)
    strategy.prepare_create(obj)
    strategy.stamp(obj, None, now_s)


def validate_create(row: Resource, obj: Any) -> Causes:
    """Every error of a new object."""
    return row.validate(obj)


def prepare_update(row: Resource, new: Any, old: Any, now_s: float, subresource: str = "") -> None:
    """Step before validation of an update; `new` is changed."""
    strategy = strategy_of(row)
    metadata.carry_over(new.metadata, old.metadata)
    if subresource:
        strategy.parts[subresource].prepare(new, old)
    else:
        strategy.prepare_update(new, old)
    strategy.stamp(new, old, now_s)


def validate_update(row: Resource, new: Any, old: Any, subresource: str = "") -> Causes:
    """Every error of an update: of the object as it would be, and of what may not change."""
    if subresource:
        return strategy_of(row).parts[subresource].validate(new, old)
    return row.validate_update(new, old)
