"""Pods: what clients may not set, generations, graceful deletion, binding to a node.

Counterpart: kubernetes pkg/registry/core/pod.
"""

from __future__ import annotations

from typing import Any

from apiserver.rules import metadata
from apiserver.rules.deletion import DeleteOutcome, begin_graceful
from podyard.api import errors, meta, pod_resources
from podyard.api.types import Binding, Pod, PodStatus, meta_v1

TERMINAL_PHASES = ("Succeeded", "Failed")
_GATED = "SchedulingGated"


def prepare_create(pod: Pod) -> None:
    """A new pod is Pending with its quality of service; a gated one says so."""
    metadata.first_generation(pod)
    pod.status.CopyFrom(PodStatus(phase="Pending", qosClass=pod_resources.qos_class(pod)))
    _apply_match_label_keys(pod)
    if pod.spec.schedulingGates:
        pod.status.conditions.add(
            type="PodScheduled",
            status="False",
            reason=_GATED,
            message="Scheduling is blocked due to non-empty scheduling gates",
        )


def _apply_match_label_keys(pod: Pod) -> None:
    """`matchLabelKeys` become selector terms, so that later changes of labels don't matter."""
    affinity = pod.spec.affinity
    terms: list[Any] = []
    for side in ("podAffinity", "podAntiAffinity"):
        if pod.spec.HasField("affinity") and affinity.HasField(side):
            chosen = getattr(affinity, side)
            terms += chosen.requiredDuringSchedulingIgnoredDuringExecution
            terms += [item.podAffinityTerm for item in chosen.preferredDuringSchedulingIgnoredDuringExecution]
    for term in terms:
        if not term.HasField("labelSelector"):
            continue
        for keys, operator in ((term.matchLabelKeys, "In"), (term.mismatchLabelKeys, "NotIn")):
            _add_terms(term.labelSelector, keys, operator, pod)
    for constraint in pod.spec.topologySpreadConstraints:
        if constraint.HasField("labelSelector"):
            _add_terms(constraint.labelSelector, constraint.matchLabelKeys, "In", pod)


def _add_terms(selector: meta_v1.LabelSelector, keys: Any, operator: str, pod: Pod) -> None:
    for key in keys:
        if key in pod.metadata.labels:
            selector.matchExpressions.add(key=key, operator=operator, values=[pod.metadata.labels[key]])


def prepare_update(new: Pod, old: Pod) -> None:
    """Status is not the client's; a changed spec is a new generation."""
    new.status.CopyFrom(old.status)
    metadata.count_generation(new, old, lambda pod: pod.spec)


def prepare_status(new: Pod, old: Pod) -> None:
    """Only the status changes here; owners are safe from old kubelets."""
    new.spec.CopyFrom(old.spec)
    del new.metadata.ownerReferences[:]
    new.metadata.ownerReferences.extend(old.metadata.ownerReferences)
    new.status.qosClass = new.status.qosClass or old.status.qosClass


def delete(pod: Pod, options: meta_v1.DeleteOptions, now_s: float) -> DeleteOutcome:
    """The pod's own grace unless the request names one; none for pods that nobody runs."""
    if options.HasField("gracePeriodSeconds"):
        grace_s = options.gracePeriodSeconds
    else:
        grace_s = pod.spec.terminationGracePeriodSeconds
    if not pod.spec.nodeName or pod.status.phase in TERMINAL_PHASES:
        grace_s = 0
    return begin_graceful(pod.metadata, options, now_s, grace_s=1 if grace_s < 0 else grace_s)


def bind(pod: Pod, binding: Binding, now_s: float) -> None:
    """Assigns the pod to the node of the binding; `pod` is changed.

    Raises:
        InternalError: the binding names no node (upstream's quirk: 500 without causes).
        Conflict: another pod of this name, bound already, gated, or being deleted.
    """
    _check_binding(binding)
    name = pod.metadata.name
    wanted = binding.metadata.uid
    if wanted and wanted != pod.metadata.uid:
        raise errors.Conflict.precondition("pods/binding", name, "UID", wanted, pod.metadata.uid)
    if meta.is_terminating(pod.metadata):
        raise errors.Conflict.of(
            "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host"
        )
    if pod.spec.nodeName:
        raise errors.Conflict.of(
            "pods/binding", name, f'pod {name} is already assigned to node "{pod.spec.nodeName}"'
        )
    if pod.spec.schedulingGates:
        raise errors.Conflict.of("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    pod.spec.nodeName = binding.target.name
    for key, value in binding.metadata.annotations.items():
        pod.metadata.annotations[key] = value
    for key, value in binding.metadata.labels.items():
        pod.metadata.labels[key] = value
    pod.status.nominatedNodeName = ""
    meta.set_condition(pod.status.conditions, "PodScheduled", "True", now_s)


def _check_binding(binding: Binding) -> None:
    causes = []
    if binding.target.kind not in ("", "Node"):
        causes.append(errors.not_supported("target.kind", binding.target.kind, ["Node", "<empty>"]))
    if not binding.target.name:
        causes.append(errors.required("target.name"))
    if causes:
        raise errors.ApiError(errors.aggregate(causes), code=500)
