"""Table cells of workloads, storage, networking, access control and the rest: one function a kind.

Kinds of the core and the general rules: `columns`.

Counterpart: kubernetes pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from podyard.api import hpa_conversion, meta, scale, times
from podyard.api.types import (
    IntOrString,
    Message,
    admissionregistration_v1,
    apps_v1,
    autoscaling_v1,
    autoscaling_v2,
    batch_v1,
    certificates_v1,
    core_v1,
    flowcontrol_v1,
    networking_v1,
    node_v1,
    policy_v1,
    rbac_v1,
    resource_v1,
    storage_v1,
)

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
MAX_LISTED = 3
_ACCESS_MODES = (
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
)
_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASSES = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_INGRESS_CLASS = "ingressclass.kubernetes.io/is-default-class"


def age(obj: Any, now_s: float) -> str:
    """How long the object has been there."""
    return meta.age_text(obj.metadata.creationTimestamp, now_s)


def containers(template: Any) -> list[str]:
    """Names and images of a template's containers."""
    listed = template.spec.containers
    return [",".join(item.name for item in listed), ",".join(item.image for item in listed)]


def more(items: Iterable[str]) -> str:
    """The first three, and how many more there are."""
    listed = list(items)
    shown = ",".join(listed[:MAX_LISTED])
    return f"{shown} + {len(listed) - MAX_LISTED} more..." if len(listed) > MAX_LISTED else shown


def _labels(values: Mapping[str, str]) -> str:
    return ",".join(f"{key}={values[key]}" for key in sorted(values)) or NONE


def _int_or_percent(value: IntOrString) -> str:
    return str(value.intVal) if value.type == 0 else value.strVal


def disruption_budget(obj: policy_v1.PodDisruptionBudget, now_s: float) -> list[Any]:
    spec = obj.spec
    return [
        obj.metadata.name,
        _int_or_percent(spec.minAvailable) if spec.HasField("minAvailable") else "N/A",
        _int_or_percent(spec.maxUnavailable) if spec.HasField("maxUnavailable") else "N/A",
        obj.status.disruptionsAllowed,
        age(obj, now_s),
    ]


def daemon_set(obj: apps_v1.DaemonSet, now_s: float) -> list[Any]:
    status = obj.status
    return [
        obj.metadata.name,
        status.desiredNumberScheduled,
        status.currentNumberScheduled,
        status.numberReady,
        status.updatedNumberScheduled,
        status.numberAvailable,
        _labels(obj.spec.template.spec.nodeSelector),
        age(obj, now_s),
        *containers(obj.spec.template),
        scale.selector_text(obj.spec.selector) or NONE,
    ]


def stateful_set(obj: apps_v1.StatefulSet, now_s: float) -> list[Any]:
    ready = f"{obj.status.readyReplicas}/{obj.spec.replicas}"
    return [obj.metadata.name, ready, age(obj, now_s), *containers(obj.spec.template)]


def controller_revision(obj: apps_v1.ControllerRevision, now_s: float) -> list[Any]:
    owner = meta.controller_of(obj.metadata)
    shown = NONE
    if owner is not None:
        group, slash, _ = owner.apiVersion.rpartition("/")
        kind = f"{owner.kind}.{group}" if slash else owner.kind
        shown = f"{kind.lower()}/{owner.name}"
    return [obj.metadata.name, shown, obj.revision, age(obj, now_s)]


def replication_controller(obj: core_v1.ReplicationController, now_s: float) -> list[Any]:
    return [
        obj.metadata.name,
        obj.spec.replicas,
        obj.status.replicas,
        obj.status.readyReplicas,
        age(obj, now_s),
        *containers(obj.spec.template),
        _labels(obj.spec.selector),
    ]


def pod_template(obj: core_v1.PodTemplate, now_s: float) -> list[Any]:
    return [obj.metadata.name, *containers(obj.template), _labels(obj.template.metadata.labels)]


def job(obj: batch_v1.Job, now_s: float) -> list[Any]:
    spec, status = obj.spec, obj.status
    if spec.HasField("completions"):
        completions = f"{status.succeeded}/{spec.completions}"
    elif spec.parallelism > 1:
        completions = f"{status.succeeded}/1 of {spec.parallelism}"
    else:
        completions = f"{status.succeeded}/1"
    duration = ""
    started_s = meta.seconds_of(status.startTime)
    if started_s is not None:
        ended_s = meta.seconds_of(status.completionTime)
        duration = times.age_text((now_s if ended_s is None else ended_s) - started_s)
    return [
        obj.metadata.name,
        _job_status(obj),
        completions,
        duration,
        age(obj, now_s),
        *containers(spec.template),
        scale.selector_text(spec.selector) or NONE,
    ]


def _job_status(obj: batch_v1.Job) -> str:
    conditions = obj.status.conditions
    for kind in ("Complete", "Failed"):
        if meta.is_condition_true(conditions, kind):
            return kind
    if meta.is_terminating(obj.metadata):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if meta.is_condition_true(conditions, kind):
            return kind
    return "Running"


def cron_job(obj: batch_v1.CronJob, now_s: float) -> list[Any]:
    spec = obj.spec
    last = obj.status.lastScheduleTime
    return [
        obj.metadata.name,
        spec.schedule,
        spec.timeZone if spec.HasField("timeZone") else NONE,
        str(spec.suspend) if spec.HasField("suspend") else UNSET,
        len(obj.status.active),
        NONE if meta.is_zero_time(last) else meta.age_text(last, now_s),
        age(obj, now_s),
        *containers(spec.jobTemplate.spec.template),
        scale.selector_text(spec.jobTemplate.spec.selector) or NONE,
    ]


def autoscaler(obj: autoscaling_v2.HorizontalPodAutoscaler, now_s: float) -> list[Any]:
    spec, target = obj.spec, obj.spec.scaleTargetRef
    return [
        obj.metadata.name,
        f"{target.kind}/{target.name}",
        _metrics(spec.metrics, obj.status.currentMetrics),
        str(spec.minReplicas) if spec.HasField("minReplicas") else UNSET,
        spec.maxReplicas,
        obj.status.currentReplicas,
        age(obj, now_s),
    ]


def _autoscaler_v1(obj: autoscaling_v1.HorizontalPodAutoscaler, now_s: float) -> list[Any]:
    return autoscaler(hpa_conversion.to_v2(obj), now_s)


def _scale(obj: autoscaling_v1.Scale, now_s: float) -> list[Any]:
    return [obj.metadata.name, obj.spec.replicas, obj.status.replicas, age(obj, now_s)]


_METRIC_FIELDS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _metrics(wanted: Any, present: Any) -> str:
    if not wanted:
        return NONE
    shown = []
    for index, metric in enumerate(wanted):
        field = _METRIC_FIELDS.get(metric.type)
        current = present[index] if index < len(present) else None
        if field is None:
            shown.append("<unknown type>")
            continue
        now = getattr(current, field).current if current is not None and current.HasField(field) else None
        source = getattr(metric, field)
        name = f"{source.name}: " if metric.type in ("Resource", "ContainerResource") else ""
        shown.append(name + _metric(source.target, now, metric.type))
    text = ", ".join(shown[:2])
    return f"{text} + {len(shown) - 2} more..." if len(shown) > 2 else text


def _metric(target: Any, now: Any, kind: str) -> str:
    if target.HasField("averageUtilization"):
        current = (
            f"{now.averageUtilization}%"
            if now is not None and now.HasField("averageUtilization")
            else UNKNOWN
        )
        return f"{current}/{target.averageUtilization}%"
    if target.HasField("averageValue"):
        current = now.averageValue.string if now is not None and now.HasField("averageValue") else UNKNOWN
        suffix = " (avg)" if kind in ("External", "Object") else ""
        return f"{current}/{target.averageValue.string}{suffix}"
    current = now.value.string if now is not None and now.HasField("value") else UNKNOWN
    return f"{current}/{target.value.string}"


def persistent_volume(obj: core_v1.PersistentVolume, now_s: float) -> list[Any]:
    spec, claim = obj.spec, obj.spec.claimRef
    return [
        obj.metadata.name,
        _storage(spec.capacity),
        _modes(spec.accessModes),
        spec.persistentVolumeReclaimPolicy,
        "Terminating" if meta.is_terminating(obj.metadata) else obj.status.phase,
        f"{claim.namespace}/{claim.name}" if spec.HasField("claimRef") else "",
        obj.metadata.annotations.get(_STORAGE_CLASS, spec.storageClassName),
        spec.volumeAttributesClassName if spec.HasField("volumeAttributesClassName") else UNSET,
        obj.status.reason,
        age(obj, now_s),
        spec.volumeMode if spec.HasField("volumeMode") else UNSET,
    ]


def persistent_volume_claim(obj: core_v1.PersistentVolumeClaim, now_s: float) -> list[Any]:
    spec, bound = obj.spec, bool(obj.spec.volumeName)
    return [
        obj.metadata.name,
        "Terminating" if meta.is_terminating(obj.metadata) else obj.status.phase,
        spec.volumeName,
        _storage(obj.status.capacity) if bound else "",
        _modes(obj.status.accessModes) if bound else "",
        obj.metadata.annotations.get(_STORAGE_CLASS, spec.storageClassName),
        spec.volumeAttributesClassName if spec.HasField("volumeAttributesClassName") else UNSET,
        age(obj, now_s),
        spec.volumeMode if spec.HasField("volumeMode") else UNSET,
    ]


def _storage(capacity: Any) -> str:
    return str(capacity["storage"].string) if "storage" in capacity else "0"


def _modes(modes: Iterable[str]) -> str:
    listed = set(modes)
    return ",".join(short for name, short in _ACCESS_MODES if name in listed)


def storage_class(obj: storage_v1.StorageClass, now_s: float) -> list[Any]:
    is_default = any(obj.metadata.annotations.get(name) == "true" for name in _DEFAULT_CLASSES)
    return [
        f"{obj.metadata.name} (default)" if is_default else obj.metadata.name,
        obj.provisioner,
        obj.reclaimPolicy or "Delete",
        obj.volumeBindingMode or "Immediate",
        obj.allowVolumeExpansion,
        age(obj, now_s),
    ]


def attributes_class(obj: storage_v1.VolumeAttributesClass, now_s: float) -> list[Any]:
    return [obj.metadata.name, obj.driverName, age(obj, now_s)]


def volume_attachment(obj: storage_v1.VolumeAttachment, now_s: float) -> list[Any]:
    spec = obj.spec
    volume = spec.source.persistentVolumeName
    return [obj.metadata.name, spec.attacher, volume, spec.nodeName, obj.status.attached, age(obj, now_s)]


def csi_driver(obj: storage_v1.CSIDriver, now_s: float) -> list[Any]:
    spec = obj.spec
    return [
        obj.metadata.name,
        spec.attachRequired if spec.HasField("attachRequired") else True,
        spec.podInfoOnMount,
        spec.storageCapacity,
        ",".join(request.audience for request in spec.tokenRequests) or UNSET,
        spec.requiresRepublish,
        ",".join(spec.volumeLifecycleModes) or NONE,
        age(obj, now_s),
    ]


def csi_node(obj: storage_v1.CSINode, now_s: float) -> list[Any]:
    return [obj.metadata.name, len(obj.spec.drivers), age(obj, now_s)]


def ingress(obj: networking_v1.Ingress, now_s: float) -> list[Any]:
    spec = obj.spec
    hosts = more(rule.host for rule in spec.rules if rule.host)
    balancers = {item.ip or item.hostname for item in obj.status.loadBalancer.ingress}
    return [
        obj.metadata.name,
        spec.ingressClassName if spec.HasField("ingressClassName") else NONE,
        hosts or "*",
        ",".join(sorted(balancers - {""})),
        "80, 443" if spec.tls else "80",
        age(obj, now_s),
    ]


def ingress_class(obj: networking_v1.IngressClass, now_s: float) -> list[Any]:
    is_default = obj.metadata.annotations.get(_DEFAULT_INGRESS_CLASS) == "true"
    parameters, shown = obj.spec.parameters, NONE
    if obj.spec.HasField("parameters"):
        group = f".{parameters.aPIGroup}" if parameters.aPIGroup else ""
        shown = f"{parameters.kind}{group}/{parameters.name}"
    name = f"{obj.metadata.name} (default)" if is_default else obj.metadata.name
    return [name, obj.spec.controller, shown, age(obj, now_s)]


def network_policy(obj: networking_v1.NetworkPolicy, now_s: float) -> list[Any]:
    return [obj.metadata.name, scale.selector_text(obj.spec.podSelector) or NONE, age(obj, now_s)]


def ip_address(obj: networking_v1.IPAddress, now_s: float) -> list[Any]:
    parent, shown = obj.spec.parentRef, NONE
    if obj.spec.HasField("parentRef"):
        group = f".{parent.group}" if parent.group else ""
        parts = [f"{parent.resource}{group}".lower(), parent.namespace, parent.name]
        shown = "/".join(part for part in parts if part)
    # Upstream gives the age without a column for it.
    return [obj.metadata.name, shown, age(obj, now_s)]


def service_cidr(obj: networking_v1.ServiceCIDR, now_s: float) -> list[Any]:
    return [obj.metadata.name, ",".join(obj.spec.cidrs), age(obj, now_s)]


def role_binding(obj: Any, now_s: float) -> list[Any]:
    def subjects(kind: str) -> list[Any]:
        return [subject for subject in obj.subjects if subject.kind == kind]

    return [
        obj.metadata.name,
        f"{obj.roleRef.kind}/{obj.roleRef.name}",
        age(obj, now_s),
        ", ".join(subject.name for subject in subjects("User")),
        ", ".join(subject.name for subject in subjects("Group")),
        ", ".join(f"{subject.namespace}/{subject.name}" for subject in subjects("ServiceAccount")),
    ]


def resource_quota(obj: core_v1.ResourceQuota, now_s: float) -> list[Any]:
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(obj.status.hard):
        used = obj.status.used[name].string if name in obj.status.used else "0"
        shown = f"{name}: {used}/{obj.status.hard[name].string}"
        (limits if name.startswith("limits.") else requests).append(shown)
    return [obj.metadata.name, ", ".join(requests), ", ".join(limits), age(obj, now_s)]


def runtime_class(obj: node_v1.RuntimeClass, now_s: float) -> list[Any]:
    return [obj.metadata.name, obj.handler, age(obj, now_s)]


def signing_request(obj: certificates_v1.CertificateSigningRequest, now_s: float) -> list[Any]:
    kinds = {item.type for item in obj.status.conditions}
    shown = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    if "Failed" in kinds:
        shown += ",Failed"
    if obj.status.certificate:
        shown += ",Issued"
    spec = obj.spec
    duration = times.age_text(spec.expirationSeconds) if spec.HasField("expirationSeconds") else NONE
    return [obj.metadata.name, age(obj, now_s), spec.signerName or NONE, spec.username, duration, shown]


def webhooks(obj: Any, now_s: float) -> list[Any]:
    return [obj.metadata.name, len(obj.Webhooks), age(obj, now_s)]


def _policy(obj: Any, count: int, now_s: float) -> list[Any]:
    kind = obj.spec.paramKind
    shown = f"{kind.apiVersion}/{kind.kind}" if obj.spec.HasField("paramKind") else UNSET
    return [obj.metadata.name, count, shown, age(obj, now_s)]


def validating_policy(obj: Any, now_s: float) -> list[Any]:
    return _policy(obj, len(obj.spec.validations), now_s)


def mutating_policy(obj: Any, now_s: float) -> list[Any]:
    return _policy(obj, len(obj.spec.mutations), now_s)


def policy_binding(obj: Any, now_s: float) -> list[Any]:
    reference, shown = obj.spec.paramRef, UNSET
    if obj.spec.HasField("paramRef"):
        if reference.name:
            shown = f"{reference.namespace or '*'}/{reference.name}"
        else:
            shown = scale.selector_text(reference.selector)
    return [obj.metadata.name, obj.spec.policyName, shown, age(obj, now_s)]


def flow_schema(obj: flowcontrol_v1.FlowSchema, now_s: float) -> list[Any]:
    spec = obj.spec
    dangling = meta.condition(obj.status.conditions, "Dangling")
    return [
        obj.metadata.name,
        spec.priorityLevelConfiguration.name,
        spec.matchingPrecedence,
        spec.distinguisherMethod.type if spec.HasField("distinguisherMethod") else NONE,
        age(obj, now_s),
        "?" if dangling is None else dangling.status,
    ]


def priority_level(obj: flowcontrol_v1.PriorityLevelConfiguration, now_s: float) -> list[Any]:
    limited, queuing = obj.spec.limited, obj.spec.limited.limitResponse.queuing
    has_queues = obj.spec.HasField("limited") and limited.limitResponse.HasField("queuing")
    numbers = [queuing.queues, queuing.handSize, queuing.queueLengthLimit]
    return [
        obj.metadata.name,
        obj.spec.type,
        limited.nominalConcurrencyShares if obj.spec.HasField("limited") else NONE,
        *(numbers if has_queues else [NONE, NONE, NONE]),
        age(obj, now_s),
    ]


def named(obj: Any, now_s: float) -> list[Any]:
    """Kinds that show no more than name and age."""
    return [obj.metadata.name, age(obj, now_s)]


def resource_claim(obj: resource_v1.ResourceClaim, now_s: float) -> list[Any]:
    states = ["deleted"] if meta.is_terminating(obj.metadata) else []
    states.append("allocated" if obj.status.HasField("allocation") else "pending")
    if obj.status.reservedFor:
        states.append("reserved")
    return [obj.metadata.name, ",".join(states), age(obj, now_s)]


def resource_slice(obj: resource_v1.ResourceSlice, now_s: float) -> list[Any]:
    spec = obj.spec
    return [obj.metadata.name, spec.nodeName, spec.driver, spec.pool.name, age(obj, now_s)]


CELLS: Mapping[type[Message], Callable[[Any, float], list[Any]]] = {
    admissionregistration_v1.MutatingAdmissionPolicy: mutating_policy,
    admissionregistration_v1.MutatingAdmissionPolicyBinding: policy_binding,
    admissionregistration_v1.MutatingWebhookConfiguration: webhooks,
    admissionregistration_v1.ValidatingAdmissionPolicy: validating_policy,
    admissionregistration_v1.ValidatingAdmissionPolicyBinding: policy_binding,
    admissionregistration_v1.ValidatingWebhookConfiguration: webhooks,
    apps_v1.ControllerRevision: controller_revision,
    apps_v1.DaemonSet: daemon_set,
    apps_v1.StatefulSet: stateful_set,
    autoscaling_v1.HorizontalPodAutoscaler: _autoscaler_v1,
    autoscaling_v1.Scale: _scale,
    autoscaling_v2.HorizontalPodAutoscaler: autoscaler,
    batch_v1.CronJob: cron_job,
    batch_v1.Job: job,
    certificates_v1.CertificateSigningRequest: signing_request,
    core_v1.PersistentVolume: persistent_volume,
    core_v1.PersistentVolumeClaim: persistent_volume_claim,
    core_v1.PodTemplate: pod_template,
    core_v1.ReplicationController: replication_controller,
    core_v1.ResourceQuota: resource_quota,
    flowcontrol_v1.FlowSchema: flow_schema,
    flowcontrol_v1.PriorityLevelConfiguration: priority_level,
    networking_v1.IPAddress: ip_address,
    networking_v1.Ingress: ingress,
    networking_v1.IngressClass: ingress_class,
    networking_v1.NetworkPolicy: network_policy,
    networking_v1.ServiceCIDR: service_cidr,
    node_v1.RuntimeClass: runtime_class,
    policy_v1.PodDisruptionBudget: disruption_budget,
    rbac_v1.ClusterRoleBinding: role_binding,
    rbac_v1.RoleBinding: role_binding,
    resource_v1.DeviceClass: named,
    resource_v1.ResourceClaim: resource_claim,
    resource_v1.ResourceClaimTemplate: named,
    resource_v1.ResourceSlice: resource_slice,
    storage_v1.CSIDriver: csi_driver,
    storage_v1.CSINode: csi_node,
    storage_v1.StorageClass: storage_class,
    storage_v1.VolumeAttachment: volume_attachment,
    storage_v1.VolumeAttributesClass: attributes_class,
}
