"""Defaults of networking, access control, admission, flow control, device claims and limits.

Counterpart: kubernetes pkg/apis/{networking,rbac,admissionregistration,flowcontrol,resource,core}/v1
defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.pod_defaults import round_up
from podyard.api.types import (
    Message,
    admissionregistration_v1,
    core_v1,
    flowcontrol_v1,
    networking_v1,
    node_v1,
    rbac_v1,
    resource_v1,
)
from podyard.api.workload_defaults import set_missing

_RBAC = "rbac.authorization.k8s.io"
_WEBHOOK_PORT = 443


def network_policy(obj: networking_v1.NetworkPolicy) -> None:
    """Incoming traffic always, outgoing where there are rules for it."""
    rules: list[Any] = [*obj.spec.ingress, *obj.spec.egress]
    for rule in rules:
        for port in rule.ports:
            set_missing(port, protocol="TCP")
    if not obj.spec.policyTypes:
        obj.spec.policyTypes.append("Ingress")
        if obj.spec.egress:
            obj.spec.policyTypes.append("Egress")


def ingress_class(obj: networking_v1.IngressClass) -> None:
    """Parameters of the whole cluster."""
    if obj.spec.HasField("parameters"):
        set_missing(obj.spec.parameters, scope="Cluster")


def binding(obj: Any) -> None:
    """Groups of roles and subjects; either kind of binding."""
    obj.roleRef.apiGroup = obj.roleRef.apiGroup or _RBAC
    for subject in obj.subjects:
        if subject.kind in ("User", "Group"):
            subject.apiGroup = subject.apiGroup or _RBAC


def webhooks(obj: Any) -> None:
    """Fail closed after ten seconds, for all objects; either kind of configuration."""
    for hook in obj.Webhooks:
        set_missing(hook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
        _selectors(hook)
        if isinstance(hook, admissionregistration_v1.MutatingWebhook):
            set_missing(hook, reinvocationPolicy="Never")
        if hook.clientConfig.HasField("service"):
            set_missing(hook.clientConfig.service, port=_WEBHOOK_PORT)
        for rule in hook.rules:
            set_missing(rule.rule, scope="*")


def _selectors(message: Any) -> None:
    for name in ("namespaceSelector", "objectSelector"):
        getattr(message, name).SetInParent()


def policy(obj: Any) -> None:
    """Fail closed; either kind of policy."""
    set_missing(obj.spec, failurePolicy="Fail")
    if obj.spec.HasField("matchConstraints"):
        _match_resources(obj.spec.matchConstraints)


def policy_binding(obj: Any) -> None:
    """Matches equivalent requests; either kind of binding."""
    if obj.spec.HasField("matchResources"):
        _match_resources(obj.spec.matchResources)


def _match_resources(value: Any) -> None:
    set_missing(value, matchPolicy="Equivalent")
    _selectors(value)
    for rule in (*value.resourceRules, *value.excludeResourceRules):
        set_missing(rule.ruleWithOperations.rule, scope="*")


def flow_schema(obj: flowcontrol_v1.FlowSchema) -> None:
    """In the middle of the order."""
    obj.spec.matchingPrecedence = obj.spec.matchingPrecedence or 1000


def priority_level(obj: flowcontrol_v1.PriorityLevelConfiguration) -> None:
    """Shares, and queues where requests wait."""
    spec = obj.spec
    # Upstream: an exempt level has its part even when nothing is said of it.
    if spec.HasField("exempt"):
        set_missing(spec.exempt, nominalConcurrencyShares=0, lendablePercent=0)
    if not spec.HasField("limited"):
        return
    set_missing(spec.limited, nominalConcurrencyShares=30, lendablePercent=0)
    if spec.limited.limitResponse.HasField("queuing"):
        queuing = spec.limited.limitResponse.queuing
        queuing.queues = queuing.queues or 64
        queuing.handSize = queuing.handSize or 8
        queuing.queueLengthLimit = queuing.queueLengthLimit or 50


def resource_claim(obj: resource_v1.ResourceClaim) -> None:
    """One device for each request."""
    _claim(obj.spec.devices)


def claim_template(obj: resource_v1.ResourceClaimTemplate) -> None:
    """As the claim's."""
    _claim(obj.spec.spec.devices)


def _claim(devices: Any) -> None:
    for request in devices.requests:
        parts = [*request.firstAvailable, *([request.exactly] if request.HasField("exactly") else [])]
        for part in parts:
            part.allocationMode = part.allocationMode or "ExactCount"
            if part.allocationMode == "ExactCount":
                part.count = part.count or 1
            for toleration in part.tolerations:
                toleration.operator = toleration.operator or "Equal"


def resource_slice(obj: resource_v1.ResourceSlice) -> None:
    """A device's share of a node's resources."""
    for device in obj.spec.devices:
        for mapping in device.nodeAllocatableResourceMappings.values():
            if not mapping.HasField("allocationMultiplier"):
                mapping.allocationMultiplier.string = "1"


def limit_range(obj: core_v1.LimitRange) -> None:
    """Containers: the default limit is the most, the default request the default limit or the least."""
    for item in obj.spec.limits:
        for values in (item.max, item.min, item.default, item.defaultRequest, item.maxLimitRequestRatio):
            round_up(values)
        if item.type != "Container":
            continue
        for source, target in (
            (item.max, item.default),
            (item.default, item.defaultRequest),
            (item.min, item.defaultRequest),
        ):
            for name, value in source.items():
                if name not in target:
                    target[name].CopyFrom(value)


def resource_quota(obj: core_v1.ResourceQuota) -> None:
    """Amounts are whole thousandths."""
    for values in (obj.spec.hard, obj.status.hard, obj.status.used):
        round_up(values)


def runtime_class(obj: node_v1.RuntimeClass) -> None:
    """Amounts are whole thousandths."""
    round_up(obj.overhead.podFixed)


DEFAULTS: Mapping[type[Message], Callable[[Any], None]] = {
    admissionregistration_v1.MutatingAdmissionPolicy: policy,
    admissionregistration_v1.MutatingAdmissionPolicyBinding: policy_binding,
    admissionregistration_v1.MutatingWebhookConfiguration: webhooks,
    admissionregistration_v1.ValidatingAdmissionPolicy: policy,
    admissionregistration_v1.ValidatingAdmissionPolicyBinding: policy_binding,
    admissionregistration_v1.ValidatingWebhookConfiguration: webhooks,
    core_v1.LimitRange: limit_range,
    core_v1.ResourceQuota: resource_quota,
    flowcontrol_v1.FlowSchema: flow_schema,
    flowcontrol_v1.PriorityLevelConfiguration: priority_level,
    networking_v1.IngressClass: ingress_class,
    networking_v1.NetworkPolicy: network_policy,
    node_v1.RuntimeClass: runtime_class,
    rbac_v1.ClusterRoleBinding: binding,
    rbac_v1.RoleBinding: binding,
    resource_v1.ResourceClaim: resource_claim,
    resource_v1.ResourceClaimTemplate: claim_template,
    resource_v1.ResourceSlice: resource_slice,
}
