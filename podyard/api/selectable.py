"""Which fields of each kind a field selector may name, and their values.

`FIELDS` maps a message class to label -> function of the object; `metadata.name` and
`metadata.namespace` are always there. Labels are those of `field_selectors.tsv` (a test compares).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.types import (
    Event,
    EventsV1Event,
    Message,
    Namespace,
    Node,
    Pod,
    Secret,
    Service,
    batch_v1,
    certificates_v1,
    core_v1,
    resource_v1,
)

FieldOf = Callable[[Any], str]


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _pod_ip(pod: Pod) -> str:
    return pod.status.podIPs[0].ip if pod.status.podIPs else pod.status.podIP


_POD: dict[str, FieldOf] = {
    "spec.nodeName": lambda pod: pod.spec.nodeName,
    "spec.restartPolicy": lambda pod: pod.spec.restartPolicy,
    "spec.schedulerName": lambda pod: pod.spec.schedulerName,
    "spec.serviceAccountName": lambda pod: pod.spec.serviceAccountName,
    "spec.hostNetwork": lambda pod: _flag(pod.spec.hostNetwork),
    "status.phase": lambda pod: pod.status.phase,
    "status.podIP": _pod_ip,
    "status.nominatedNodeName": lambda pod: pod.status.nominatedNodeName,
}
_EVENT: dict[str, FieldOf] = {
    "involvedObject.apiVersion": lambda event: event.involvedObject.apiVersion,
    "involvedObject.fieldPath": lambda event: event.involvedObject.fieldPath,
    "involvedObject.kind": lambda event: event.involvedObject.kind,
    "involvedObject.name": lambda event: event.involvedObject.name,
    "involvedObject.namespace": lambda event: event.involvedObject.namespace,
    "involvedObject.resourceVersion": lambda event: event.involvedObject.resourceVersion,
    "involvedObject.uid": lambda event: event.involvedObject.uid,
    "reason": lambda event: event.reason,
    "reportingComponent": lambda event: event.reportingComponent,
    "source": lambda event: event.source.component or event.reportingComponent,
    "type": lambda event: event.type,
}
_EVENTS_V1: dict[str, FieldOf] = {
    "regarding.apiVersion": lambda event: event.regarding.apiVersion,
    "regarding.fieldPath": lambda event: event.regarding.fieldPath,
    "regarding.kind": lambda event: event.regarding.kind,
    "regarding.name": lambda event: event.regarding.name,
    "regarding.namespace": lambda event: event.regarding.namespace,
    "regarding.resourceVersion": lambda event: event.regarding.resourceVersion,
    "regarding.uid": lambda event: event.regarding.uid,
    "reason": lambda event: event.reason,
    "reportingController": lambda event: event.reportingController,
    "type": lambda event: event.type,
}
FIELDS: Mapping[type[Message], Mapping[str, FieldOf]] = {
    Pod: _POD,
    Event: _EVENT,
    EventsV1Event: _EVENTS_V1,
    Namespace: {"status.phase": lambda namespace: namespace.status.phase},
    Node: {"spec.unschedulable": lambda node: _flag(node.spec.unschedulable)},
    certificates_v1.CertificateSigningRequest: {"spec.signerName": lambda request: request.spec.signerName},
    batch_v1.Job: {"status.successful": lambda job: str(job.status.succeeded)},
    core_v1.ReplicationController: {"status.replicas": lambda owner: str(owner.status.replicas)},
    resource_v1.ResourceSlice: {
        "spec.driver": lambda piece: piece.spec.driver,
        "spec.nodeName": lambda piece: piece.spec.nodeName,
    },
    Secret: {"type": lambda secret: secret.type},
    Service: {
        "spec.clusterIP": lambda service: service.spec.clusterIP,
        "spec.type": lambda service: service.spec.type,
    },
}
# Labels that stand for another, or that are accepted without being in the field set.
ALIASES: Mapping[type[Message], Mapping[str, str]] = {
    Pod: {"spec.host": "spec.nodeName", "status.podIPs": "status.podIPs"},
}
# Kinds whose only labels are metadata.name and metadata.namespace say which two are known;
# the others just say that the label is not supported.
_NAMED_KINDS = frozenset(FIELDS)


def unsupported_text(message: type[Message], label: str) -> str:
    """What the answer to an unknown label says."""
    if message in _NAMED_KINDS:
        return f"field label not supported: {label}"
    return f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
