# ruff: noqa: E501 -- one case a line
"""Workloads, storage, networking, access and the other kinds: what is filled in, refused, and shown."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from apiserver.rules import strategy
from podyard.api import codec, columns, resources
from podyard.api.resources import Resource
from tests.unit.apiserver.test_registry_rows import build, name_for

NOW_S = 1_767_323_045.0  # 2026-01-02T03:04:05Z
META = {"name": "a", "creationTimestamp": "2026-01-02T03:00:00Z"}
AGE = "4m5s"
TEMPLATE = "{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}"
ONCE = "{spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"
SELECTOR = "{matchLabels: {app: a}}"
RULE = "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}"


def row_of(kind: str) -> Resource:
    """`Job`, or `autoscaling/v1 HorizontalPodAutoscaler`."""
    version, _, name = kind.rpartition(" ")
    return next(
        row for row in resources.RESOURCES if row.kind == name and row.api_version.startswith(version)
    )


def made(kind: str, text: str, *, defaults: bool = True) -> Any:
    row = row_of(kind)
    value = yaml.safe_load(text) or {}
    metadata: dict[str, Any] = {"name": name_for(row, "a"), "uid": "u"}
    if row.namespaced:
        metadata["namespace"] = "default"
    value["metadata"] = {**metadata, **value.get("metadata", {})}
    obj = codec.from_dict(value, row.message)
    if defaults:
        row.defaults(obj)
    return obj


def found(kind: str, text: str) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in row_of(kind).validate(made(kind, text))]


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else value.get(part)
    return value


# Every row's own example is a good object, and changing nothing in it is a good update.


@pytest.mark.parametrize("row", resources.RESOURCES, ids=lambda row: row.qualified)
def test_examples_are_good(row: Resource) -> None:
    if row.kind in ("Job", "Service"):
        return  # what the server adds is part of what is checked
    obj = build(row, name_for(row, "a"))
    row.defaults(obj)
    assert row.validate(obj) == []
    assert row.validate_update(obj, obj) == []


@pytest.mark.parametrize(
    ("kind", "text", "path", "wanted"),
    [
        ("DaemonSet", "{}", "spec.updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
        ("DaemonSet", "{spec: {updateStrategy: {type: OnDelete}}}", "spec.updateStrategy", {"type": "OnDelete"}),
        ("DaemonSet", "{}", "spec.revisionHistoryLimit", 10),
        ("StatefulSet", "{}", "spec.updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ("StatefulSet", "{}", "spec.persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"}),
        ("StatefulSet", "{}", "spec.podManagementPolicy", "OrderedReady"),
        ("StatefulSet", "{spec: {volumeClaimTemplates: [{metadata: {name: d}}]}}", "spec.volumeClaimTemplates.0.spec.volumeMode", "Filesystem"),
        ("ReplicationController", f"{{spec: {{template: {TEMPLATE}}}}}", "spec.selector", {"app": "a"}),
        ("ReplicationController", f"{{spec: {{template: {TEMPLATE}}}}}", "metadata.labels", {"app": "a"}),
        ("ReplicationController", f"{{spec: {{template: {TEMPLATE}}}}}", "spec.replicas", 1),
        ("Job", "{}", "spec.completions", 1),
        ("Job", "{spec: {parallelism: 3}}", "spec.completions", None),
        ("Job", "{}", "spec.backoffLimit", 6),
        ("Job", "{spec: {backoffLimitPerIndex: 1}}", "spec.backoffLimit", 2**31 - 1),
        ("Job", "{}", "spec.podReplacementPolicy", "TerminatingOrFailed"),
        ("Job", "{spec: {podFailurePolicy: {rules: [{onPodConditions: [{type: a}]}]}}}", "spec.podReplacementPolicy", "Failed"),
        ("Job", "{spec: {podFailurePolicy: {rules: [{onPodConditions: [{type: a}]}]}}}", "spec.podFailurePolicy.rules.0.onPodConditions.0.status", "True"),
        ("CronJob", "{}", "spec.successfulJobsHistoryLimit", 3),
        ("CronJob", "{}", "spec.concurrencyPolicy", "Allow"),
        ("autoscaling/v2 HorizontalPodAutoscaler", "{}", "spec.metrics", [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        ("autoscaling/v2 HorizontalPodAutoscaler", "{spec: {behavior: {scaleUp: {}}}}", "spec.behavior.scaleDown", {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}),
        ("autoscaling/v1 HorizontalPodAutoscaler", "{}", "spec.targetCPUUtilizationPercentage", 80),
        ("autoscaling/v1 HorizontalPodAutoscaler", "{}", "spec.minReplicas", 1),
        ("NetworkPolicy", "{}", "spec.policyTypes", ["Ingress"]),
        ("NetworkPolicy", "{spec: {egress: [{ports: [{port: 1}]}]}}", "spec.policyTypes", ["Ingress", "Egress"]),
        ("NetworkPolicy", "{spec: {egress: [{ports: [{port: 1}]}]}}", "spec.egress.0.ports.0.protocol", "TCP"),
        ("IngressClass", "{spec: {parameters: {kind: k, name: n}}}", "spec.parameters.scope", "Cluster"),
        ("StorageClass", "{}", "reclaimPolicy", "Delete"),
        ("StorageClass", "{}", "volumeBindingMode", "Immediate"),
        ("CSIDriver", "{}", "spec", {"attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"], "storageCapacity": False,
                                     "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False, "seLinuxMount": False}),
        ("PersistentVolume", "{spec: {iscsi: {targetPortal: p, iqn: q, lun: 0}}}", "spec.iscsi.iscsiInterface", "default"),
        ("PersistentVolume", "{}", "spec.persistentVolumeReclaimPolicy", "Retain"),
        ("PersistentVolumeClaim", "{}", "spec.volumeMode", "Filesystem"),
        ("PersistentVolumeClaim", "{}", "status.phase", "Pending"),
        ("RoleBinding", "{subjects: [{kind: User, name: x}, {kind: ServiceAccount, name: y}]}", "subjects", [
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "x"}, {"kind": "ServiceAccount", "name": "y"}]),
        ("ClusterRoleBinding", "{roleRef: {kind: ClusterRole, name: x}}", "roleRef.apiGroup", "rbac.authorization.k8s.io"),
        ("LimitRange", "{spec: {limits: [{type: Container, max: {cpu: 2}, min: {cpu: 1}}]}}", "spec.limits.0.defaultRequest", {"cpu": "2"}),
        ("LimitRange", "{spec: {limits: [{type: Container, min: {cpu: 1}}]}}", "spec.limits.0.defaultRequest", {"cpu": "1"}),
        ("LimitRange", "{spec: {limits: [{type: Pod, max: {cpu: 2}}]}}", "spec.limits.0.default", None),
        ("ValidatingWebhookConfiguration", f"{{webhooks: [{{clientConfig: {{service: {{}}}}, rules: [{RULE}]}}]}}", "webhooks.0.timeoutSeconds", 10),
        ("ValidatingWebhookConfiguration", f"{{webhooks: [{{clientConfig: {{service: {{}}}}, rules: [{RULE}]}}]}}", "webhooks.0.clientConfig.service.port", 443),
        ("ValidatingWebhookConfiguration", f"{{webhooks: [{{clientConfig: {{service: {{}}}}, rules: [{RULE}]}}]}}", "webhooks.0.rules.0.scope", "*"),
        ("MutatingWebhookConfiguration", "{webhooks: [{}]}", "webhooks.0.reinvocationPolicy", "Never"),
        ("MutatingWebhookConfiguration", "{webhooks: [{}]}", "webhooks.0.objectSelector", {}),
        ("ValidatingAdmissionPolicy", "{spec: {matchConstraints: {}}}", "spec.matchConstraints.matchPolicy", "Equivalent"),
        ("FlowSchema", "{}", "spec.matchingPrecedence", 1000),
        ("PriorityLevelConfiguration", "{spec: {limited: {limitResponse: {queuing: {}}}}}", "spec.limited.limitResponse.queuing", {"queues": 64, "handSize": 8, "queueLengthLimit": 50}),
        ("PriorityLevelConfiguration", "{spec: {limited: {}}}", "spec.limited.nominalConcurrencyShares", 30),
        ("ResourceClaim", "{spec: {devices: {requests: [{exactly: {}}]}}}", "spec.devices.requests.0.exactly.count", 1),
    ],
)  # fmt: skip
def test_defaults(kind: str, text: str, path: str, wanted: Any) -> None:
    assert at(codec.to_dict(made(kind, text)), path) == wanted


SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def daemon_set(more: str = "") -> str:
    return f"{{spec: {{selector: {SELECTOR}, template: {TEMPLATE}, {more}}}}}"


def cron_job(more: str = "", job: str = "") -> str:
    return f"{{spec: {{schedule: '* * * * *', jobTemplate: {{spec: {{template: {ONCE}, {job}}}}}, {more}}}}}"


def job(more: str = "") -> str:
    return f"{{spec: {{manualSelector: true, selector: {SELECTOR}, template: {{metadata: {{labels: {{app: a}}}}, spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}, {more}}}}}"


def autoscaler(more: str = "") -> str:
    return f"{{spec: {{scaleTargetRef: {{kind: Deployment, name: a}}, maxReplicas: 3, {more}}}}}"


def volume(more: str = "") -> str:
    return f"{{spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], {more}}}}}"


def claim(more: str = "") -> str:
    return f"{{spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}, {more}}}}}"


def ingress_path(text: str) -> str:
    return f"{{spec: {{rules: [{{http: {{paths: [{{{text}}}]}}}}]}}}}"


BACKEND = "backend: {service: {name: s, port: {number: 1}}}"


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("DaemonSet", daemon_set("updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}"), [
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"]),
        ("DaemonSet", daemon_set("updateStrategy: {rollingUpdate: {maxUnavailable: 0}}"), [
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"]),
        ("DaemonSet", "{spec: {selector: {matchLabels: {app: b}}, template: TEMPLATE}}".replace("TEMPLATE", TEMPLATE), [
            'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`']),
        ("DaemonSet", "{spec: {selector: {}, template: TEMPLATE, minReadySeconds: -1}}".replace("TEMPLATE", TEMPLATE), [
            "spec.selector: Invalid value: {}: empty selector is invalid for daemonset",
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0"]),
        ("StatefulSet", daemon_set("podManagementPolicy: Odd, serviceName: A"), [
            "spec.podManagementPolicy: Invalid value: \"Odd\": must be 'OrderedReady' or 'Parallel'",
            "spec.serviceName: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"]),
        ("StatefulSet", daemon_set("updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}"), [
            'spec.updateStrategy.rollingUpdate: Invalid value: {"Partition":1,"MaxUnavailable":null}: only allowed for updateStrategy \'RollingUpdate\'']),
        ("StatefulSet", daemon_set("volumeClaimTemplates: [{metadata: {name: d}, spec: {}}]"), [
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"]),
        ("ControllerRevision", "{}", ["data: Required value: data is mandatory"]),
        ("ControllerRevision", "{data: {a: 1}, revision: -1}", ["revision: Invalid value: -1: must be greater than or equal to 0"]),
        ("ReplicationController", "{}", ["spec.selector: Required value", "spec.template: Required value"]),
        ("ReplicationController", f"{{spec: {{selector: {{app: b}}, template: {TEMPLATE}}}}}", [
            'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`']),
        ("Job", job("completions: -1, parallelism: -2"), [
            "spec.parallelism: Invalid value: -2: must be greater than or equal to 0",
            "spec.completions: Invalid value: -1: must be greater than or equal to 0"]),
        ("Job", job("completionMode: Indexed, parallelism: 1"), ["spec.completions: Required value: when completion mode is Indexed"]),
        ("Job", job("backoffLimitPerIndex: 1"), ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"]),
        ("Job", job("managedBy: odd"), ['spec.managedBy: Invalid value: "odd": must be a domain-prefixed path (such as "acme.io/foo")']),
        ("Job", job("podFailurePolicy: {rules: [{action: FailIndex}]}"), [
            'spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"]),
        ("Job", job("podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, containerName: x, values: [2, 0, 2]}}]}"), [
            'spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template',
            "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
            "spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 2",
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0,2]: must be ordered"]),
        ("Job", job("completionMode: Indexed, completions: 5, successPolicy: {rules: [{succeededIndexes: '0,3-9', succeededCount: 6}, {}]}"), [
            'spec.successPolicy.rules[0].succeededIndexes: Invalid value: "0,3-9": error parsing succeededIndexes: too large index: "9"',
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
            "spec.successPolicy.rules[1]: Required value: at least one of succeededCount or succeededIndexes must be specified"]),
        ("Job", f"{{spec: {{manualSelector: true, selector: {SELECTOR}, template: {TEMPLATE}}}}}", [
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"']),
        ("CronJob", cron_job("schedule: '61 * * * *'").replace("schedule: '* * * * *', ", ""), [
            'spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61']),
        ("CronJob", cron_job("timeZone: Nowhere/At All, startingDeadlineSeconds: -1"), [
            "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
            'spec.timeZone: Invalid value: "Nowhere/At All": unknown time zone Nowhere/At All']),
        ("CronJob", cron_job("timeZone: Europe/Berlin"), []),
        ("CronJob", cron_job("timeZone: Local"), ['spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones']),
        ("CronJob", cron_job(job=f"selector: {SELECTOR}, manualSelector: true"), [
            'spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"app":"a"}}: `selector` will be auto-generated',
            'spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "false", "nil"']),
        ("CronJob", f"{{metadata: {{name: {'a' * 53}}}, {cron_job()[1:]}", [f'metadata.name: Invalid value: "{"a" * 53}": must be no more than 52 characters']),
        ("autoscaling/v2 HorizontalPodAutoscaler", "{spec: {minReplicas: 0}}", [
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            "spec.maxReplicas: Required value: must be greater than 0",
            "spec.scaleTargetRef.kind: Required value", "spec.scaleTargetRef.name: Required value"]),
        ("autoscaling/v2 HorizontalPodAutoscaler", autoscaler("metrics: [{type: Resource, pods: {}}, {type: Odd}, {type: Pods, pods: {metric: {name: m}, target: {type: AverageValue}}}]"), [
            "spec.metrics[0].pods: Forbidden: must populate the given metric source only: resource",
            "spec.metrics[0].resource: Required value: must populate information for the given metric source: resource",
            'spec.metrics[1].type: Unsupported value: "Odd": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"',
            "spec.metrics[2].pods.target.averageValue: Required value: must specify a positive target averageValue"]),
        ("autoscaling/v2 HorizontalPodAutoscaler", autoscaler("behavior: {scaleUp: {stabilizationWindowSeconds: 3601, policies: [{type: Odd, value: 0, periodSeconds: 1801}]}}"), [
            "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            'spec.behavior.scaleUp.policies[0].type: Unsupported value: "Odd": supported values: "Percent", "Pods"',
            "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
            "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800"]),
        ("autoscaling/v1 HorizontalPodAutoscaler", "{spec: {scaleTargetRef: {kind: Deployment, name: a}, maxReplicas: 1, targetCPUUtilizationPercentage: 0}}", [
            "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"]),
        ("Ingress", "{}", ['spec: Invalid value: null: either `defaultBackend` or `rules` must be specified']),
        ("Ingress", ingress_path(f"path: a, pathType: Prefix, {BACKEND}"), ['spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path']),
        ("Ingress", ingress_path(f"path: /a/../b, pathType: Exact, {BACKEND}"), ["spec.rules[0].http.paths[0].path: Invalid value: \"/a/../b\": must not contain '/../'"]),
        ("Ingress", ingress_path(f"path: /a, {BACKEND}"), ["spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"]),
        ("Ingress", ingress_path("path: /a, pathType: Prefix, backend: {service: {name: s}}"), ["spec.rules[0].http.paths[0].backend: Required value: port name or number is required"]),
        ("Ingress", "{spec: {rules: [{host: 10.0.0.1}]}}", ['spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address']),
        ("IngressClass", "{spec: {controller: odd, parameters: {kind: k, name: n, namespace: x}}}", [
            'spec.controller: Invalid value: "odd": must be a domain-prefixed path (such as "acme.io/foo")',
            "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"]),
        ("NetworkPolicy", "{spec: {ingress: [{from: [{}, {podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}], ports: [{protocol: X}, {port: 5, endPort: 4}]}]}}", [
            'spec.ingress[0].ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
            "spec.ingress[0].ports[1].endPort: Invalid value: 5: must be greater than or equal to `port`",
            "spec.ingress[0].from[0]: Required value: must specify a peer",
            "spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer",
            'spec.ingress[0].from[2].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`']),
        ("IPAddress", "{metadata: {name: 10.000.0.1}}", [
            'metadata.name: Invalid value: "10.000.0.1": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)', "spec.parentRef: Required value"]),
        ("IPAddress", "{metadata: {name: 'FD00::1'}, spec: {parentRef: {resource: services, name: a}}}", [
            'metadata.name: Invalid value: "FD00::1": must be a canonical format IP address']),
        ("ServiceCIDR", "{spec: {cidrs: [10.0.0.0/8, 11.0.0.0/8]}}", [
            'spec.cidrs: Invalid value: ["10.0.0.0/8","11.0.0.0/8"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64']),
        ("StorageClass", "{reclaimPolicy: Recycle, parameters: {'': x}}", [
            "provisioner: Required value", 'parameters: Invalid value: "": field can not be empty.',
            'reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"']),
        ("PersistentVolume", volume(), ["spec: Required value: must specify a volume type"]),
        ("PersistentVolume", volume("local: {path: /x}"), ["spec.nodeAffinity: Required value: Local volume requires node affinity"]),
        ("PersistentVolume", volume("hostPath: {path: /}, nfs: {server: s, path: /p}, persistentVolumeReclaimPolicy: Recycle"), [
            "spec.nfs: Forbidden: may not specify more than 1 volume type",
            "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"]),
        ("PersistentVolume", "{spec: {accessModes: [ReadWriteOncePod, ReadWriteMany], capacity: {storage: 0}, csi: {}}}", [
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
            'spec.capacity[storage]: Invalid value: "0": must be greater than zero',
            "spec.csi.driver: Required value", "spec.csi.volumeHandle: Required value"]),
        ("PersistentVolumeClaim", "{spec: {volumeMode: Odd, dataSource: {kind: Odd, name: x}}}", [
            "spec.accessModes: Required value: at least 1 access mode is required", "spec.resources[storage]: Required value",
            'spec.volumeMode: Unsupported value: "Odd": supported values: "Block", "Filesystem"',
            "spec.dataSource: Invalid value: \"Odd\": must be 'PersistentVolumeClaim' when referencing the default apiGroup"]),
        ("CSIDriver", "{spec: {fsGroupPolicy: Odd, volumeLifecycleModes: [Odd], tokenRequests: [{audience: a, expirationSeconds: 5}, {audience: a}]}}", [
            'spec.fsGroupPolicy: Unsupported value: "Odd": supported values: "File", "None", "ReadWriteOnceWithFSType"',
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
            'spec.tokenRequests[1].audience: Duplicate value: "a"',
            'spec.volumeLifecycleModes: Unsupported value: "Odd": supported values: "Ephemeral", "Persistent"']),
        ("CSINode", "{spec: {drivers: [{name: a}, {name: a, nodeID: n}]}}", [
            "spec.drivers[0].nodeID: Required value", 'spec.drivers[1].name: Duplicate value: "a"']),
        ("CSIStorageCapacity", "{capacity: -1}", ["storageClassName: Required value", 'capacity: Invalid value: "-1": must be greater than or equal to 0']),
        ("VolumeAttachment", "{spec: {nodeName: n}}", [
            "spec.attacher: Required value", "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"]),
        ("VolumeAttributesClass", "{driverName: a}", ["parameters: Required value: must contain at least one key/value pair"]),
        ("Role", "{rules: [{}, {verbs: [get], nonResourceURLs: [/x]}]}", [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
            'rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs']),
        ("ClusterRole", "{aggregationRule: {}}", ["aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"]),
        ("ClusterRoleBinding", "{roleRef: {kind: Role, name: x}, subjects: [{kind: ServiceAccount, name: y}, {kind: Odd, name: z}]}", [
            'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"', "subjects[0].namespace: Required value",
            'subjects[1].kind: Unsupported value: "Odd": supported values: "Group", "ServiceAccount", "User"']),
        ("LimitRange", "{spec: {limits: [{type: Pod, default: {cpu: 1}}, {type: PersistentVolumeClaim}]}}", [
            "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            "spec.limits[1].limits: Required value: either minimum or maximum storage value is required, but neither was provided"]),
        ("LimitRange", "{spec: {limits: [{type: Container, min: {cpu: 2}, max: {cpu: 1}, default: {cpu: 1}, defaultRequest: {cpu: 1}, maxLimitRequestRatio: {cpu: 500m}}]}}", [
            'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
            'spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1',
            'spec.limits[0].default[cpu]: Invalid value: "1": min value 2 is greater than default value 1',
            'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1',]),
        ("ResourceQuota", "{spec: {hard: {pods: -1, services: 1}, scopes: [BestEffort, NotBestEffort]}}", [
            'spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0',
            'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: unsupported scope applied to resource',
            'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: unsupported scope applied to resource',
            'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes']),
        ("RuntimeClass", "{scheduling: {tolerations: [{operator: Exists}, {operator: Exists}]}}", [
            "handler: Required value",
            'scheduling.tolerations[1]: Duplicate value: {"Key":"","Operator":"Exists","Value":"","Effect":"","TolerationSeconds":null}']),
        ("CertificateSigningRequest", "{spec: {request: eA==, usages: [odd], signerName: odd, expirationSeconds: 5}}", [
            "spec.request: Invalid value: [120]: PEM block type must be CERTIFICATE REQUEST",
            'spec.usages[0]: Unsupported value: "odd": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"',
            "spec.signerName: Invalid value: \"odd\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
            "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)"]),
        ("ValidatingWebhookConfiguration", "{webhooks: [{name: a, clientConfig: {url: 'http://u:p@x'}, rules: [{operations: ['*', CREATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*', pods]}], timeoutSeconds: 31}]}", [
            'webhooks[0].name: Invalid value: "a": should be a domain with at least three segments separated by dots',
            "webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources",
            "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            'webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL',
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"]),
        ("ValidatingAdmissionPolicy", "{spec: {matchConstraints: {}}}", [
            "spec.matchConstraints.resourceRules: Required value",
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item"]),
        ("ValidatingAdmissionPolicyBinding", "{spec: {policyName: p, validationActions: [Deny, Warn]}}", [
            'spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)']),
        ("MutatingAdmissionPolicy", f"{{spec: {{matchConstraints: {{resourceRules: [{RULE}]}}, mutations: [{{patchType: Odd}}, {{patchType: JSONPatch}}], reinvocationPolicy: Odd}}}}", [
            'spec.mutations[0].patchType: Unsupported value: "Odd": supported values: "ApplyConfiguration", "JSONPatch"',
            "spec.mutations[1].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            'spec.reinvocationPolicy: Unsupported value: "Odd": supported values: "IfNeeded", "Never"']),
        ("FlowSchema", "{spec: {matchingPrecedence: 10001, rules: [{subjects: [{kind: Odd}]}]}}", [
            "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            'spec.rules[0].subjects[0].kind: Unsupported value: "Odd": supported values: "Group", "ServiceAccount", "User"',
            "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"]),
        ("PriorityLevelConfiguration", "{spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 4, handSize: 5}}}}}", [
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)"]),
        ("PriorityLevelConfiguration", "{spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 2000000000, handSize: 1900000000}}}}}", [
            "spec.limited.limitResponse.queuing.queues: Invalid value: 2000000000: must not be greater than 10000000",
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 1900000000: required entropy bits of deckSize 2000000000 and handSize 1900000000 should not be greater than 60"]),
        ("FlowSchema", "{spec: {priorityLevelConfiguration: {name: a}, distinguisherMethod: {type: Odd}, rules: [{subjects: [{kind: User, group: {name: g}}], resourceRules: [{verbs: [odd], resources: ['*', pods]}], nonResourceRules: [{verbs: [get], nonResourceURLs: [a, '/a*']}]}]}}", [
            'spec.distinguisherMethod.type: Unsupported value: {"Type":"Odd"}: supported values: "ByNamespace", "ByUser"',
            "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
            "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
            'spec.rules[0].resourceRules[0].verbs: Unsupported value: ["odd"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"',
            "spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "spec.rules[0].resourceRules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources",
            "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
            'spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "a": must start with slash',
            'spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a*": wildcard can only do suffix matching']),
        ("ResourceClaim", "{spec: {devices: {requests: [{name: a}, {name: a, exactly: {allocationMode: Odd}}], config: [{requests: [b], opaque: {driver: d, parameters: {}}}]}}}", [
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            'spec.devices.requests[1].name: Duplicate value: "a"',
            "spec.devices.requests[1].exactly.deviceClassName: Required value",
            'spec.devices.requests[1].exactly.allocationMode: Unsupported value: "Odd": supported values: "All", "ExactCount"',
            "spec.devices.config[0].requests[0]: Invalid value: \"b\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"]),
        ("ResourceSlice", "{spec: {driver: d, pool: {name: p}}}", [
            'spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero',
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"]),
    ],
)  # fmt: skip
def test_bad_objects(kind: str, text: str, wanted: list[str]) -> None:
    assert found(kind, text) == wanted


def updated(kind: str, before: str, after: str) -> list[str]:
    causes = row_of(kind).validate_update(made(kind, after), made(kind, before))
    return [f"{cause.field}: {cause.message}" for cause in causes]


_ODD = "{matchExpressions: [{key: a, operator: Odd}]}"
_SHOWN = '{"matchExpressions":[{"key":"a","operator":"Odd"}]}'
_UNLIKE = "`selector` does not match template `labels`"


@pytest.mark.parametrize(
    ("kind", "called", "unparsable"),
    [
        ("Deployment", "deployment", ": invalid label selector"),
        ("ReplicaSet", "deployment", ": invalid label selector"),
        ("StatefulSet", "statefulset", ""),
        ("DaemonSet", "daemonset", None),
    ],
)
def test_selectors_of_workloads(kind: str, called: str, unparsable: str | None) -> None:
    def said(selector: str, template: str = TEMPLATE) -> list[str]:
        whole = f"{{spec: {{{selector} template: {template}}}}}"
        return [f"{cause.field}: {cause.message}" for cause in row_of(kind).validate(made(kind, whole))]

    assert said(f"selector: {SELECTOR},") == []
    needed = [] if kind == "DaemonSet" else ["spec.selector: Required value"]
    unlike = f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {_UNLIKE}'
    assert said("") == [*needed, unlike]
    assert said("selector: {},") == [
        f"spec.selector: Invalid value: {{}}: empty selector is invalid for {called}"
    ]
    bare = TEMPLATE.replace("metadata: {labels: {app: a}}, ", "")
    assert bare != TEMPLATE
    assert said("", bare)[-1] == f"spec.template.metadata.labels: Invalid value: null: {_UNLIKE}"
    odd = 'spec.selector.matchExpressions[0].operator: Invalid value: "Odd": not a valid selector operator'
    whole = [] if unparsable is None else [f"spec.selector: Invalid value: {_SHOWN}{unparsable}"]
    assert said(f"selector: {_ODD},") == [odd, *whole]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet"])
def test_a_changed_selector_is_said_last(kind: str) -> None:
    before = f"{{spec: {{selector: {SELECTOR}, template: {TEMPLATE}}}}}"
    causes = updated(kind, before, before.replace("app: a", "app: b", 1))
    assert causes == [
        f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {_UNLIKE}',
        'spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable',
    ]


def test_a_percentage_is_written_as_upstream_asks_for_it() -> None:
    text = f"{{spec: {{selector: {SELECTOR}, template: {TEMPLATE}, strategy: {{rollingUpdate: {{maxSurge: half}}}}}}}}"
    [cause] = row_of("Deployment").validate(made("Deployment", text))
    assert cause.message == (
        "Invalid value: \"half\": a valid percent string must be a numeric string followed by an ending '%' "
        "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
    )


INDEXED = "completionMode: Indexed, completions: 2, parallelism: 2"
BOUND = "{spec: {accessModes: [ReadWriteOnce], volumeName: v, resources: {requests: {storage: SIZE}}}, status: {phase: Bound, capacity: {storage: 2Gi}}}"


@pytest.mark.parametrize(
    ("kind", "before", "after", "wanted"),
    [
        ("DaemonSet", daemon_set(), daemon_set().replace("app: a", "app: b"), [
            'spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable']),
        ("StatefulSet", daemon_set(), daemon_set("replicas: 3, minReadySeconds: 1"), []),
        ("StatefulSet", daemon_set(), daemon_set("serviceName: x"), [
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"]),
        ("ControllerRevision", "{data: {a: 1}}", "{data: {a: 1}, revision: 2}", []),
        ("ControllerRevision", "{data: {a: 1}}", "{data: {a: 2}}", ['data: Invalid value: "{\\"a\\":2}": field is immutable']),
        ("Job", job(), job("completions: 2"), ["spec.completions: Invalid value: 2: field is immutable"]),
        ("Job", job(INDEXED), job("completionMode: Indexed, completions: 3, parallelism: 3"), []),
        ("Job", job(INDEXED), job("completionMode: Indexed, completions: 3, parallelism: 2"), [
            "spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"]),
        ("Job", job("suspend: true"), job("suspend: true").replace("{restartPolicy", "{nodeSelector: {a: b}, restartPolicy"), []),
        ("IngressClass", "{spec: {controller: a.b/c}}", "{spec: {controller: a.b/d}}", ['spec.controller: Invalid value: "a.b/d": field is immutable']),
        ("ServiceCIDR", "{spec: {cidrs: [10.0.0.0/8]}}", "{spec: {cidrs: [10.0.0.0/8, 'fd00::/64']}}", []),
        ("ServiceCIDR", "{spec: {cidrs: [10.0.0.0/8]}}", "{spec: {cidrs: [11.0.0.0/8]}}", ['spec.cidrs[0]: Invalid value: "11.0.0.0/8": field is immutable']),
        ("StorageClass", "{provisioner: a}", "{provisioner: b, parameters: {x: y}, reclaimPolicy: Retain}", [
            'parameters: Invalid value: {"x":"y"}: field is immutable', 'provisioner: Invalid value: "b": field is immutable',
            'reclaimPolicy: Invalid value: "Retain": field is immutable']),
        ("PersistentVolume", volume("hostPath: {path: /a}"), volume("hostPath: {path: /b}, volumeMode: Block"), [
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n  core.PersistentVolumeSource{\n- \tHostPath: {\"path\":\"/a\",\"type\":\"\"},\n+ \tHostPath: {\"path\":\"/b\",\"type\":\"\"},\n  }\n",
            'volumeMode: Invalid value: "Block": field is immutable']),
        ("PersistentVolumeClaim", claim(), claim("volumeName: v, storageClassName: fast"), []),
        ("PersistentVolumeClaim", BOUND.replace("SIZE", "2Gi"), BOUND.replace("SIZE", "3Gi"), []),
        ("PersistentVolumeClaim", BOUND.replace("SIZE", "2Gi"), BOUND.replace("SIZE", "1Gi"), ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]),
        ("RoleBinding", "{roleRef: {kind: Role, name: a}}", "{roleRef: {kind: Role, name: b}}", [
            'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}: cannot change roleRef']),
        ("ResourceQuota", "{spec: {hard: {pods: 1}}}", "{spec: {hard: {pods: 2}, scopes: [BestEffort]}}", ['spec.scopes: Invalid value: ["BestEffort"]: field is immutable']),
        ("RuntimeClass", "{handler: a}", "{handler: b}", ['handler: Invalid value: "b": field is immutable']),
        ("CSIDriver", "{}", "{spec: {attachRequired: false}}", ["spec.attachRequired: Invalid value: false: field is immutable"]),
    ],
)  # fmt: skip
def test_updates(kind: str, before: str, after: str, wanted: list[str]) -> None:
    assert updated(kind, before, after) == wanted


def test_what_a_claim_may_not_change_is_shown() -> None:
    (cause,) = updated(
        "PersistentVolumeClaim", claim(), claim("volumeMode: Filesystem").replace("1Gi", "2Gi")
    )
    assert cause.startswith(
        "spec: Forbidden: spec is immutable after creation except resources.requests and "
        "volumeAttributesClassName for bound claims\n  core.PersistentVolumeClaimSpec{\n"
    )


@pytest.mark.parametrize(
    ("kind", "part", "before", "after", "wanted"),
    [
        ("DaemonSet", "status", "{}", "{status: {numberReady: -1}}", ["status.numberReady: Invalid value: -1: must be greater than or equal to 0"]),
        ("StatefulSet", "status", "{status: {collisionCount: 2}}", "{status: {replicas: 1, readyReplicas: 2, availableReplicas: 3, collisionCount: 1}}", [
            "status.collisionCount: Invalid value: 1: cannot be decremented",
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
            "status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas",
            "status.availableReplicas: Invalid value: 3: cannot be greater than status.readyReplicas"]),
        ("Job", "status", "{status: {succeeded: 2}}", "{status: {succeeded: 1, active: 1, ready: 2, conditions: [{type: Complete, status: 'True'}]}}", [
            "status.ready: Invalid value: 2: cannot set more ready pods than active",
            "status.active: Invalid value: 1: active>0 is invalid for finished job",
            "status.startTime: Required value: startTime is required for finished job",
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter"]),
        ("Ingress", "status", "{}", "{status: {loadBalancer: {ingress: [{ip: x}, {hostname: 10.0.0.1}]}}}", [
            'status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
            'status.loadBalancer.ingress[1].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address']),
        ("PodDisruptionBudget", "status", "{}", "{status: {disruptionsAllowed: -1, conditions: [{type: a, status: Odd}]}}", [
            'status.conditions[0].status: Unsupported value: "Odd": supported values: "False", "True", "Unknown"',
            "status.conditions[0].lastTransitionTime: Required value: must be set", "status.conditions[0].reason: Required value: must be set",
            "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"]),
        ("CertificateSigningRequest", "status", "{}", "{status: {conditions: [{type: Approved, status: 'True'}], certificate: eA==}}", [
            'status.conditions: Forbidden: updates may not add a condition of type "Approved"',
            'status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block']),
        ("CertificateSigningRequest", "approval", "{status: {conditions: [{type: Denied, status: 'True'}]}}", "{status: {conditions: [{type: Approved, status: 'False'}]}}", [
            'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
            'status.conditions: Forbidden: updates may not remove a condition of type "Denied"']),
    ],
)  # fmt: skip
def test_status_updates(kind: str, part: str, before: str, after: str, wanted: list[str]) -> None:
    check = strategy.strategy_of(row_of(kind)).parts[part].validate
    causes = check(made(kind, after, defaults=False), made(kind, before, defaults=False))
    assert [f"{cause.field}: {cause.message}" for cause in causes] == wanted


TRUE = "status: 'True'"
OWNED = "{ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, controller: true}], name: a, creationTimestamp: '2026-01-02T03:00:00Z'}"


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("DaemonSet", f"{{spec: {{selector: {SELECTOR}, template: {TEMPLATE}}}, status: {{desiredNumberScheduled: 3, numberReady: 2}}}}",
         ["a", 3, 0, 2, 0, 0, "<none>", AGE, "c", "i", "app=a"]),
        ("StatefulSet", f"{{spec: {{replicas: 3, template: {TEMPLATE}}}, status: {{readyReplicas: 2}}}}", ["a", "2/3", AGE, "c", "i"]),
        ("ControllerRevision", f"{{metadata: {OWNED}, revision: 4}}", ["a", "daemonset.apps/d", 4, AGE]),
        ("ReplicationController", f"{{spec: {{replicas: 2, selector: {{b: c}}, template: {TEMPLATE}}}}}", ["a", 2, 0, 0, AGE, "c", "i", "b=c"]),
        ("PodTemplate", f"{{template: {TEMPLATE}}}", ["a", "c", "i", "app=a"]),
        ("Job", f"{{spec: {{completions: 3, template: {TEMPLATE}}}, status: {{succeeded: 1, startTime: '2026-01-02T03:04:00Z'}}}}", ["a", "Running", "1/3", "5s", AGE, "c", "i", "<none>"]),
        ("Job", f"{{spec: {{parallelism: 3}}, status: {{conditions: [{{type: Complete, {TRUE}}}], startTime: '2026-01-02T03:00:00Z', completionTime: '2026-01-02T03:01:00Z'}}}}",
         ["a", "Complete", "0/1 of 3", "60s", AGE, "", "", "<none>"]),
        ("CronJob", f"{{spec: {{schedule: '@hourly', suspend: true, jobTemplate: {{spec: {{template: {TEMPLATE}}}}}}}, status: {{active: [{{}}], lastScheduleTime: '2026-01-02T03:04:00Z'}}}}",
         ["a", "@hourly", "<none>", "True", 1, "5s", AGE, "c", "i", "<none>"]),
        ("autoscaling/v2 HorizontalPodAutoscaler", "{spec: {scaleTargetRef: {kind: D, name: d}, maxReplicas: 4, metrics: [{type: Resource, resource: {name: cpu, target: {averageUtilization: 80}}}, {type: Pods, pods: {target: {averageValue: 5}}}, {type: External, external: {target: {value: 7}}}]}, status: {currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 10}}}]}}",
         ["a", "D/d", "cpu: 10%/80%, <unknown>/5 + 1 more...", "<unset>", 4, 0, AGE]),
        ("autoscaling/v1 HorizontalPodAutoscaler", "{spec: {scaleTargetRef: {kind: D, name: d}, minReplicas: 1, maxReplicas: 4, targetCPUUtilizationPercentage: 50}}",
         ["a", "D/d", "cpu: <unknown>/50%", "1", 4, 0, AGE]),
        ("Ingress", "{spec: {ingressClassName: x, tls: [{}], rules: [{host: a.b}]}, status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}}", ["a", "x", "a.b", "10.0.0.1", "80, 443", AGE]),
        ("Ingress", "{}", ["a", "<none>", "*", "", "80", AGE]),
        ("IngressClass", "{metadata: {annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}, creationTimestamp: '2026-01-02T03:00:00Z'}, spec: {controller: a.b/c, parameters: {apiGroup: g, kind: K, name: n}}}", ["a (default)", "a.b/c", "K.g/n", AGE]),
        ("NetworkPolicy", "{}", ["a", "<none>", AGE]),
        ("ServiceCIDR", "{spec: {cidrs: [10.0.0.0/8]}}", ["a", "10.0.0.0/8", AGE]),
        ("IPAddress", "{spec: {parentRef: {resource: services, namespace: n, name: s}}}", ["a", "services/n/s", AGE]),
        ("PersistentVolume", "{spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany, ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, claimRef: {namespace: n, name: c}, storageClassName: fast, volumeMode: Block}, status: {phase: Bound}}",
         ["a", "1Gi", "RWO,RWX", "Retain", "Bound", "n/c", "fast", "<unset>", "", AGE, "Block"]),
        ("PersistentVolumeClaim", "{spec: {volumeName: v}, status: {phase: Bound, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}}", ["a", "Bound", "v", "1Gi", "RWO", "", "<unset>", AGE, "<unset>"]),
        ("StorageClass", "{metadata: {annotations: {storageclass.kubernetes.io/is-default-class: 'true'}, creationTimestamp: '2026-01-02T03:00:00Z'}, provisioner: p, allowVolumeExpansion: true}",
         ["a (default)", "p", "Delete", "Immediate", True, AGE]),
        ("VolumeAttachment", "{spec: {attacher: x, nodeName: n, source: {persistentVolumeName: v}}, status: {attached: true}}", ["a", "x", "v", "n", True, AGE]),
        ("CSIDriver", "{}", ["a", True, False, False, "<unset>", False, "<none>", AGE]),
        ("CSINode", "{spec: {drivers: [{name: d}]}}", ["a", 1, AGE]),
        ("Role", "{}", ["a", "2026-01-02T03:00:00Z"]),
        ("RoleBinding", "{roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: u}, {kind: Group, name: g}, {kind: ServiceAccount, namespace: n, name: s}]}", ["a", "Role/r", AGE, "u", "g", "n/s"]),
        ("ResourceQuota", "{status: {hard: {pods: 4, limits.cpu: 2}, used: {pods: 1}}}", ["a", "pods: 1/4", "limits.cpu: 0/2", AGE]),
        ("RuntimeClass", "{handler: crun}", ["a", "crun", AGE]),
        ("CertificateSigningRequest", "{spec: {signerName: s, username: u, expirationSeconds: 3600}, status: {certificate: eA==, conditions: [{type: Approved}]}}", ["a", AGE, "s", "u", "60m", "Approved,Issued"]),
        ("ValidatingWebhookConfiguration", "{webhooks: [{}, {}]}", ["a", 2, AGE]),
        ("ValidatingAdmissionPolicy", "{spec: {validations: [{}], paramKind: {apiVersion: v1, kind: ConfigMap}}}", ["a", 1, "v1/ConfigMap", AGE]),
        ("MutatingAdmissionPolicy", "{}", ["a", 0, "<unset>", AGE]),
        ("ValidatingAdmissionPolicyBinding", "{spec: {policyName: p, paramRef: {name: n}}}", ["a", "p", "*/n", AGE]),
        ("FlowSchema", "{spec: {matchingPrecedence: 5, priorityLevelConfiguration: {name: l}}}", ["a", "l", 5, "<none>", AGE, "?"]),
        ("PriorityLevelConfiguration", "{spec: {type: Limited, limited: {nominalConcurrencyShares: 3, limitResponse: {queuing: {queues: 1, handSize: 2, queueLengthLimit: 3}}}}}", ["a", "Limited", 3, 1, 2, 3, AGE]),
        ("ResourceClaim", "{status: {allocation: {}, reservedFor: [{}]}}", ["a", "allocated,reserved", AGE]),
        ("ResourceSlice", "{spec: {driver: d, nodeName: n, pool: {name: p}}}", ["a", "n", "d", "p", AGE]),
    ],
)  # fmt: skip
def test_cells(kind: str, text: str, wanted: list[Any]) -> None:
    row = row_of(kind)
    value = yaml.safe_load(text)
    obj = codec.from_dict({**value, "metadata": {**META, **value.get("metadata", {})}}, row.message)
    assert columns.table(row, [obj], NOW_S)["rows"][0]["cells"] == wanted


@pytest.mark.parametrize("row", resources.REVIEWS, ids=lambda row: row.qualified)
def test_metadata_of_reviews_may_be_set_to_nothing(row: Resource) -> None:
    # As Go's clients send it.
    review = row.message()
    review.metadata.creationTimestamp.SetInParent()
    review.metadata.generateName = ""
    assert not [cause for cause in row.validate(review) if cause.field == "metadata"]
    review.metadata.generateName = "a"
    causes = [cause for cause in row.validate(review) if cause.field == "metadata"]
    assert bool(causes) == (row.group == "authorization.k8s.io" and row.kind != "SelfSubjectRulesReview")


def test_templates_of_claims_name_their_kind() -> None:
    obj = made("StatefulSet", "{spec: {volumeClaimTemplates: [{metadata: {name: d}}]}}", defaults=False)
    (claim_,) = codec.to_dict(obj)["spec"]["volumeClaimTemplates"]
    assert (claim_["kind"], claim_["apiVersion"]) == ("PersistentVolumeClaim", "v1")
    assert codec.same(codec.from_dict(codec.to_dict(obj), type(obj)), obj)
