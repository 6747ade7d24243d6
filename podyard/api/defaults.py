"""Defaults that the server fills into objects, by message class; functions change the object in place.

Also what upstream does while converting to its internal version: twin fields (`podIP`/`podIPs`,
`serviceAccount`/`serviceAccountName`, `stringData`) are brought together. Running a function twice
changes nothing the second time. Facts: `tables/defaults.tsv`.

Counterpart: kubernetes pkg/apis/*/v1 defaults and conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api import kind_defaults, storage_defaults, workload_defaults
from podyard.api.pod_defaults import pod, pod_spec, round_up
from podyard.api.types import (
    Endpoints,
    EndpointSlice,
    IntOrString,
    Message,
    Namespace,
    Node,
    Pod,
    PodTemplateSpec,
    PriorityClass,
    Secret,
    Service,
    apps_v1,
)

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
_CLIENT_IP_TIMEOUT_S = 10800


def none(obj: Any) -> None:
    """For kinds without defaults."""


def namespace(obj: Namespace) -> None:
    """Name label and phase."""
    if obj.metadata.name:
        obj.metadata.labels[NAMESPACE_NAME_LABEL] = obj.metadata.name
    if not obj.status.phase:
        obj.status.phase = "Active"


def node(obj: Node) -> None:
    """Allocatable is the capacity until the node says better; podCIDR is the first of podCIDRs.

    Where both are given and differ, the older field counts: old clients know no other.
    """
    round_up(obj.status.capacity)
    round_up(obj.status.allocatable)
    if not obj.status.allocatable and obj.status.capacity:
        for name, value in obj.status.capacity.items():
            obj.status.allocatable[name].CopyFrom(value)
    spec = obj.spec
    if spec.podCIDR and list(spec.podCIDRs[:1]) != [spec.podCIDR]:
        spec.podCIDRs[:] = [spec.podCIDR]
    elif spec.podCIDRs:
        spec.podCIDR = spec.podCIDRs[0]


def secret(obj: Secret) -> None:
    """Type, and `stringData` (write-only) merged into `data`."""
    if not obj.type:
        obj.type = "Opaque"
    for key, text in obj.stringData.items():
        obj.data[key] = text.encode()
    obj.ClearField("stringData")


def service(obj: Service) -> None:
    """Type, affinity, ports, traffic policies."""
    spec = obj.spec
    spec.type = spec.type or "ClusterIP"
    spec.sessionAffinity = spec.sessionAffinity or "None"
    if spec.sessionAffinity == "None":
        spec.ClearField("sessionAffinityConfig")
    elif spec.sessionAffinity == "ClientIP" and not spec.sessionAffinityConfig.clientIP.timeoutSeconds:
        spec.sessionAffinityConfig.clientIP.timeoutSeconds = _CLIENT_IP_TIMEOUT_S
    for port in spec.ports:
        port.protocol = port.protocol or "TCP"
        target = port.targetPort
        if (target.type == 0 and target.intVal == 0) or (target.type == 1 and not target.strVal):
            target.type, target.intVal, target.strVal = 0, port.port, ""
    exposed = spec.type in ("NodePort", "LoadBalancer")
    if (exposed or (spec.type == "ClusterIP" and spec.externalIPs)) and not spec.externalTrafficPolicy:
        spec.externalTrafficPolicy = "Cluster"
    if (exposed or spec.type == "ClusterIP") and not spec.internalTrafficPolicy:
        spec.internalTrafficPolicy = "Cluster"
    if spec.type == "LoadBalancer":
        if not spec.HasField("allocateLoadBalancerNodePorts"):
            spec.allocateLoadBalancerNodePorts = True
        for ingress in obj.status.loadBalancer.ingress:
            if ingress.ip and not ingress.HasField("ipMode"):
                ingress.ipMode = "VIP"
    # The twin field: clusterIPs[0] is always clusterIP.
    if spec.clusterIP and not spec.clusterIPs:
        spec.clusterIPs.append(spec.clusterIP)


def endpoints(obj: Endpoints) -> None:
    """Protocols of ports."""
    for subset in obj.subsets:
        for port in subset.ports:
            port.protocol = port.protocol or "TCP"


def endpoint_slice(obj: EndpointSlice) -> None:
    """Names and protocols of ports."""
    for port in obj.ports:
        if not port.HasField("name"):
            port.name = ""
        if not port.HasField("protocol"):
            port.protocol = "TCP"


def priority_class(obj: PriorityClass) -> None:
    """Preemption is allowed unless it says otherwise."""
    if not obj.HasField("preemptionPolicy"):
        obj.preemptionPolicy = "PreemptLowerPriority"


def _template(template: PodTemplateSpec) -> None:
    pod_spec(template.spec)


def deployment(obj: apps_v1.Deployment) -> None:
    """One replica, rolling by a quarter, ten old revisions, ten minutes to progress."""
    spec = obj.spec
    if not spec.HasField("replicas"):
        spec.replicas = 1
    strategy = spec.strategy
    strategy.type = strategy.type or "RollingUpdate"
    if strategy.type == "RollingUpdate":
        for limit in ("maxUnavailable", "maxSurge"):
            if not strategy.rollingUpdate.HasField(limit):
                getattr(strategy.rollingUpdate, limit).CopyFrom(IntOrString(type=1, strVal="25%"))
    if not spec.HasField("revisionHistoryLimit"):
        spec.revisionHistoryLimit = 10
    if not spec.HasField("progressDeadlineSeconds"):
        spec.progressDeadlineSeconds = 600
    _template(spec.template)


def replica_set(obj: apps_v1.ReplicaSet) -> None:
    """One replica."""
    if not obj.spec.HasField("replicas"):
        obj.spec.replicas = 1
    _template(obj.spec.template)


DEFAULTS: Mapping[type[Message], Callable[[Any], None]] = {
    **kind_defaults.DEFAULTS,
    **storage_defaults.DEFAULTS,
    **workload_defaults.DEFAULTS,
    apps_v1.Deployment: deployment,
    apps_v1.ReplicaSet: replica_set,
    Endpoints: endpoints,
    EndpointSlice: endpoint_slice,
    Namespace: namespace,
    Node: node,
    Pod: pod,
    PriorityClass: priority_class,
    Secret: secret,
    Service: service,
}
