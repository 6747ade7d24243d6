# ruff: noqa: E501 -- one case a line
"""Validation: every error at its path, in upstream's words."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from podyard.api import codec, resources
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
)


def made(cls: type[Message], text: str) -> Any:
    row = resources.by_message(cls)
    value = yaml.safe_load(text) or {}
    metadata: dict[str, Any] = {"name": "a"}
    if row.namespaced:
        metadata["namespace"] = "default"
    value["metadata"] = {**metadata, **value.get("metadata", {})}
    obj = codec.from_dict(value, cls)
    row.defaults(obj)
    return obj


def found(cls: type[Message], text: str) -> list[str]:
    return [
        f"{cause.field}: {cause.message}" for cause in resources.by_message(cls).validate(made(cls, text))
    ]


CONTAINER = "{name: c, image: nginx}"


def pod(spec: str = "", containers: str = CONTAINER, more: str = "") -> str:
    return f"{{{more} spec: {{{spec} containers: [{containers}]}}}}"


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (ConfigMap, "{data: {a.b: c}, binaryData: {x: AA==}}"),
        (Secret, "{data: {a: AA==}}"),
        (Namespace, "{spec: {finalizers: [kubernetes]}}"),
        (ServiceAccount, "{}"),
        (Node, "{spec: {podCIDRs: [10.244.0.0/24], taints: [{key: a/b, effect: NoSchedule}]}, status: {capacity: {cpu: 4, example.com/gpu: 2, hugepages-2Mi: 4Mi}}}"),
        (Lease, "{spec: {leaseDurationSeconds: 15, holderIdentity: x}}"),
        (PriorityClass, "{value: 1000000000}"),
        (PriorityClass, "{metadata: {name: system-node-critical}, value: 2000001000}"),
        (Service, "{spec: {ports: [{port: 80}], clusterIP: 10.96.0.1}}"),
        (Service, "{spec: {clusterIP: None}}"),
        (Service, "{spec: {type: ExternalName, externalName: example.com.}}"),
        (Endpoints, "{subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 1}]}]}"),
        (EndpointSlice, "{addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}], ports: [{port: 1}]}"),
        (Event, "{involvedObject: {namespace: default}}"),
        (EventsV1Event, "{eventTime: '2026-01-02T03:04:05.000006Z', reportingController: a/b, reportingInstance: i, action: x, reason: y, type: Normal}"),
        (Pod, pod()),
        (Pod, pod("volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}, {name: w, secret: {secretName: s}}],",
                  "{name: c, image: i, volumeMounts: [{name: v, mountPath: /v, subPath: a/b}], env: [{name: A B, value: x}, {name: L, valueFrom: {fieldRef: {fieldPath: 'metadata.labels[''x'']'}}}]}")),
        (Pod, pod("tolerations: [{operator: Exists}, {key: a, effect: NoExecute, tolerationSeconds: 5}], dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1]},")),
    ],
)  # fmt: skip
def test_good_objects(cls: type[Message], text: str) -> None:
    assert found(cls, text) == []


SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("cls", "text", "wanted"),
    [
        (ConfigMap, "{metadata: {name: A_}}", [f'metadata.name: Invalid value: "A_": {SUBDOMAIN}']),
        (ConfigMap, "{metadata: {name: ''}}", ["metadata.name: Required value: name or generateName is required"]),
        (ConfigMap, "{metadata: {namespace: ''}}", ["metadata.namespace: Required value"]),
        (Node, "{metadata: {namespace: x}}", ["metadata.namespace: Forbidden: not allowed on this type"]),
        (ConfigMap, "{data: {x: a}, binaryData: {x: AA==}}", ['data[x]: Invalid value: "x": duplicate of key present in binaryData']),
        (Secret, "{type: kubernetes.io/tls, data: {tls.crt: ''}}", ["data[tls.key]: Required value"]),
        (Secret, "{type: kubernetes.io/basic-auth}", ["data[username]: Required value", "data[password]: Required value"]),
        (Secret, "{type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: eA==}}", ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid JSON object']),
        (Namespace, "{spec: {finalizers: [odd]}}", ['spec.finalizers: Invalid value: "odd": name is neither a standard finalizer name nor is it fully qualified']),
        (Lease, "{spec: {leaseDurationSeconds: 0, leaseTransitions: -1, preferredHolder: x}}", [
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            "spec.preferredHolder: Forbidden: may only be specified when `strategy` is defined"]),
        (PriorityClass, "{value: 1000000001}", ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]),
        (PriorityClass, "{value: 1, preemptionPolicy: Maybe}", ['preemptionPolicy: Unsupported value: "Maybe": supported values: "Never", "PreemptLowerPriority"']),
        (Node, "{spec: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}, {key: b}]}}", [
            'metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair',
            "metadata.taints[2].effect: Required value"]),
        (Node, "{status: {capacity: {cpu: -1, pods: 1500m, odd: 1}}}", [
            'status.capacity[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            'status.capacity[odd]: Invalid value: "odd": must be a standard resource type or fully qualified',
            'status.capacity[pods]: Invalid value: "1500m": must be an integer',
            'status.allocatable[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            'status.allocatable[odd]: Invalid value: "odd": must be a standard resource type or fully qualified',
            'status.allocatable[pods]: Invalid value: "1500m": must be an integer']),
        (Service, "{spec: {}}", ["spec.ports: Required value"]),
        (Service, "{spec: {type: Odd, ports: [{port: 0}]}}", [
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            'spec.type: Unsupported value: "Odd": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"',
            "spec.internalTrafficPolicy: Required value"]),
        (Service, "{spec: {ports: [{port: 80}, {port: 80}]}}", [
            "spec.ports[0].name: Required value", "spec.ports[1].name: Required value",
            'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}']),
        (Service, "{spec: {type: NodePort, clusterIP: None, ports: [{port: 1}]}}", ['spec.clusterIPs[0]: Invalid value: "None": may not be set to \'None\' for NodePort services']),
        (Service, "{spec: {ports: [{port: 1, nodePort: 30000}]}}", ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]),
        (Service, "{spec: {type: ExternalName}}", ["spec.externalName: Required value"]),
        (Service, "{spec: {ports: [{port: 1}], externalIPs: [127.0.0.1]}}", ['spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)']),
        (Endpoints, "{subsets: [{}]}", ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"]),
        (EndpointSlice, "{addressType: IPv6, endpoints: [{addresses: [10.0.0.1]}, {}], ports: [{}, {}]}", [
            'endpoints[0].addresses[0]: Invalid value: "10.0.0.1": must be an IPv6 address',
            "endpoints[1].addresses: Required value: must contain at least 1 address",
            'ports[1].name: Duplicate value: ""']),
        (Event, "{involvedObject: {namespace: other}}", ['involvedObject.namespace: Invalid value: "other": does not match event.namespace']),
        (EventsV1Event, "{type: Odd, deprecatedCount: 1, series: {count: 1}}", [
            'series.count: Invalid value: "": should be at least 2', "series.lastObservedTime: Required value", "eventTime: Required value",
            'type: Invalid value: "": has invalid value: Odd', 'count: Invalid value: "": needs to be unset']),
        (Event, "{eventTime: '2026-01-02T03:04:05.000006Z', involvedObject: {namespace: default}}", [
            "reportingController: Required value",
            'reportingController: Invalid value: "": name part must be non-empty',
            "reportingController: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "reportingInstance: Required value", "action: Required value", "reason: Required value"]),
    ],
)  # fmt: skip
def test_bad_objects(cls: type[Message], text: str, wanted: list[str]) -> None:
    assert found(cls, text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{spec: {}}", ["spec.containers: Required value"]),
        (pod("restartPolicy: Odd, dnsPolicy: Odd,"), [
            'spec.restartPolicy: Unsupported value: "Odd": supported values: "Always", "Never", "OnFailure"',
            'spec.dnsPolicy: Unsupported value: "Odd": supported values: "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"']),
        (pod(containers="{}"), ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"]),
        (pod(containers="{name: c, image: ' x'}, {name: c, image: y, imagePullPolicy: Odd}"), [
            'spec.containers[0].image: Invalid value: " x": must not have leading or trailing whitespace',
            'spec.containers[1].name: Duplicate value: "c"',
            'spec.containers[1].imagePullPolicy: Unsupported value: "Odd": supported values: "Always", "IfNotPresent", "Never"']),
        (pod(containers="{name: c, image: i, ports: [{}, {containerPort: 70000, protocol: X}, {containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}"), [
            "spec.containers[0].ports[0].containerPort: Required value",
            "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            'spec.containers[0].ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
            'spec.containers[0].ports[3].hostPort: Duplicate value: "TCP//5"']),
        (pod(containers="{name: c, image: i, env: [{}, {name: a, value: x, valueFrom: {fieldRef: {fieldPath: spec.odd}}}, {name: b, valueFrom: {}}, {name: d, valueFrom: {fieldRef: {fieldPath: status.phase}}}]}"), [
            "spec.containers[0].env[0].name: Required value",
            'spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Invalid value: "spec.odd": error converting fieldPath: field label not supported: spec.odd',
            'spec.containers[0].env[1].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
            'spec.containers[0].env[2].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`',
            'spec.containers[0].env[3].valueFrom.fieldRef.fieldPath: Unsupported value: "status.phase": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"']),
        (pod(containers="{name: c, image: i, envFrom: [{}, {configMapRef: {}}]}"), [
            'spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`',
            "spec.containers[0].envFrom[1].configMapRef.name: Required value"]),
        (pod("volumes: [{name: v}, {name: v}, {name: b, configMap: {}}, {name: h, hostPath: {path: /a/../b, type: Odd}}],",
             "{name: c, image: i, volumeMounts: [{name: v, mountPath: /v, subPath: /x}, {name: q, mountPath: /v}]}"), [
            'spec.volumes[1].name: Duplicate value: "v"',
            "spec.volumes[2].configMap.name: Required value",
            'spec.volumes[3].hostPath.path: Invalid value: "/a/../b": must not contain \'..\'',
            'spec.volumes[3].hostPath.type: Unsupported value: "Odd": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"',
            'spec.containers[0].volumeMounts.subPath: Invalid value: "/x": must be a relative path',
            'spec.containers[0].volumeMounts[1].name: Not found: "q"',
            'spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/v": must be unique']),
        (pod(containers="{name: c, image: i, livenessProbe: {exec: {}, periodSeconds: -1, successThreshold: 2}, readinessProbe: {httpGet: {port: 0, scheme: X}, terminationGracePeriodSeconds: 1}, startupProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}}"), [
            "spec.containers[0].livenessProbe.exec.command: Required value",
            "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
            'spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value: "X": supported values: "HTTP", "HTTPS"',
            "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes",
            "spec.containers[0].startupProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"]),
        (pod(containers="{name: c, image: i, resources: {limits: {cpu: 1, example.com/x: 1}, requests: {cpu: 2, example.com/x: 2, hugepages-2Mi: 1}}}"), [
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            'spec.containers[0].resources.requests: Invalid value: "2": must be equal to example.com/x limit of 1',
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"]),
        (pod("initContainers: [{name: c, image: i, livenessProbe: {exec: {command: [a]}}}],"), [
            'spec.initContainers[0].name: Duplicate value: "c"',
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"]),
        (pod("tolerations: [{operator: Odd}, {key: a, value: x, operator: Exists}, {key: b, tolerationSeconds: 1, effect: X}],"), [
            'spec.tolerations[0].operator: Invalid value: "Odd": operator must be Exists when `key` is empty, which means "match all values and all keys"',
            'spec.tolerations[0].operator: Unsupported value: "Odd": supported values: "Equal", "Exists"',
            'spec.tolerations[1].operator: Invalid value: {"Key":"a","Operator":"Exists","Value":"x","Effect":"","TolerationSeconds":null}: value must be empty when `operator` is \'Exists\'',
            'spec.tolerations[2].effect: Invalid value: "X": effect must be \'NoExecute\' when `tolerationSeconds` is set',
            'spec.tolerations[2].effect: Unsupported value: "X": supported values: "NoExecute", "NoSchedule", "PreferNoSchedule"']),
        (pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}, {key: b, operator: Odd}]}]}}, podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {topologyKey: x}}]}},"), [
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            'spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].operator: Invalid value: "Odd": not a valid selector operator',
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100"]),
        (pod("topologySpreadConstraints: [{maxSkew: 0, topologyKey: z, whenUnsatisfiable: Odd}],"), [
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Odd": supported values: "DoNotSchedule", "ScheduleAnyway"']),
        (pod("securityContext: {runAsUser: -1, seccompProfile: {type: Localhost}}, hostNetwork: true, hostUsers: false,"), [
            "spec.hostNetwork: Forbidden: when `hostUsers` is false",
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"]),
        (pod("nodeName: n, schedulingGates: [{name: g}], ephemeralContainers: [{name: e, image: i}],"), [
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]),
        (pod("terminationGracePeriodSeconds: 2,", "{name: a, image: i, lifecycle: {preStop: {sleep: {seconds: 3}}}}, {name: b, image: i, lifecycle: {preStop: {sleep: {seconds: -1}}}}"), [
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 3: must be non-negative and less than terminationGracePeriodSeconds (2)",
            "spec.containers[1].lifecycle.preStop.sleep: Invalid value: -1: must be non-negative and less than terminationGracePeriodSeconds (2)"]),
        (pod(containers="{name: a, image: i, resources: {requests: {foo/bar: 1, foo: 1}, limits: {foo/bar: 1, foo: 1}}}"), [
            f'spec.containers[0].resources.{part}[foo]: Invalid value: "foo": must be a standard resource {detail}'
            for part in ("limits", "requests") for detail in ("type or fully qualified", "for containers")]),
        (pod("imagePullSecrets: [{}],"), []),
        (pod("activeDeadlineSeconds: 0,"), ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"]),
    ],
)  # fmt: skip
def test_bad_pods(text: str, wanted: list[str]) -> None:
    assert found(Pod, text) == wanted


def updated(cls: type[Message], before: str, after: str) -> list[str]:
    causes = resources.by_message(cls).validate_update(made(cls, after), made(cls, before))
    return [f"{cause.field}: {cause.message}" for cause in causes]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pod(), pod(containers="{name: c, image: nginx:2, imagePullPolicy: Always}")),
        (pod(), pod("tolerations: [{operator: Exists}],")),
        (
            pod("tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 5}],"),
            pod("tolerations: [{operator: Exists, effect: NoExecute}],"),
        ),
        (pod("schedulingGates: [{name: g}],"), pod()),
        (pod("schedulingGates: [{name: g}],"), pod("schedulingGates: [{name: g}], nodeSelector: {a: b},")),
        (pod(), pod("activeDeadlineSeconds: 5,")),
        (pod(), pod(more="metadata: {labels: {a: b}},")),
        (
            pod(containers="{name: c, image: i, resources: {limits: {cpu: 1000m}}}"),
            pod(containers="{name: c, image: i, resources: {limits: {cpu: 1}}}"),
        ),
    ],
)
def test_pod_changes_that_are_allowed(before: str, after: str) -> None:
    assert updated(Pod, before, after) == []


FORBIDDEN = "spec: Forbidden: pod updates may not change fields other than "


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (pod(), pod("nodeName: n,"), FORBIDDEN),
        (pod(), pod("nodeSelector: {a: b},"), FORBIDDEN),
        (pod(), pod(containers="{name: c, image: nginx, command: [a]}"), FORBIDDEN),
        (pod(), pod(containers=f"{CONTAINER}, {{name: d, image: i}}"), "spec.containers: Forbidden: pod updates may not add or remove containers"),
        (pod("tolerations: [{operator: Exists}],"), pod(), "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"),
        (pod(), pod("schedulingGates: [{name: g}],"), "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"),
        (pod("activeDeadlineSeconds: 5,"), pod("activeDeadlineSeconds: 6,"), "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"),
        (pod("schedulingGates: [{name: g}], nodeSelector: {a: b},"), pod("schedulingGates: [{name: g}], nodeSelector: {a: c},"), 'spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed'),
        (pod(more="metadata: {annotations: {kubernetes.io/config.mirror: x}},"), pod(), "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation"),
        (pod("activeDeadlineSeconds: 5,"), pod(), 'spec.activeDeadlineSeconds: Invalid value: "null": must not update from a positive integer to nil value'),
    ],
)  # fmt: skip
def test_pod_changes_that_are_not(before: str, after: str, wanted: str) -> None:
    causes = updated(Pod, before, after)
    assert len(causes) == 1
    assert causes[0].startswith(wanted)


@pytest.mark.parametrize(
    ("cls", "before", "after", "wanted"),
    [
        (ConfigMap, "{metadata: {uid: x}}", "{metadata: {uid: y}}", ['metadata.uid: Invalid value: "y": field is immutable']),
        (ConfigMap, "{immutable: true, data: {a: b}}", "{data: {a: c}}", ["immutable: Forbidden: field is immutable when `immutable` is set", "data: Forbidden: field is immutable when `immutable` is set"]),
        (Secret, "{type: a}", "{type: b}", ['type: Invalid value: "b": field is immutable']),
        (PriorityClass, "{value: 1}", "{value: 2}", ["value: Forbidden: may not be changed in an update."]),
        (Service, "{spec: {clusterIP: 10.96.0.5, ports: [{port: 1}]}}", "{spec: {clusterIP: 10.96.0.6, ports: [{port: 1}]}}", ['spec.clusterIPs[0]: Invalid value: ["10.96.0.6"]: may not change once set']),
        (EndpointSlice, "{addressType: IPv4}", "{addressType: IPv6}", ['addressType: Invalid value: "IPv6": field is immutable']),
        (Node, "{spec: {podCIDR: 10.0.0.0/24}}", "{spec: {podCIDR: 10.0.1.0/24, podCIDRs: [10.0.0.0/24]}}", ['spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid']),
        (Node, "{spec: {podCIDR: 10.0.0.0/24}}", "{spec: {podCIDR: 10.0.1.0/24}}", ['spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid']),
        (Node, "{spec: {providerID: a}}", "{spec: {providerID: b}}", ['spec.providerID: Forbidden: node updates may not change providerID except from "" to valid']),
        (ConfigMap, "{metadata: {deletionTimestamp: '2026-01-02T03:04:05Z'}}", "{metadata: {deletionTimestamp: '2026-01-02T03:04:05Z', finalizers: [a/b]}}",
         ['metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"a/b"}']),
    ],
)  # fmt: skip
def test_changes_of_other_kinds(cls: type[Message], before: str, after: str, wanted: list[str]) -> None:
    assert updated(cls, before, after) == wanted


@pytest.mark.parametrize(
    ("metadata", "wanted"),
    [
        ("{generateName: 'A-'}", f'metadata.generateName: Invalid value: "A-": {SUBDOMAIN}'),
        ("{labels: {'a b': x}}", 'metadata.labels: Invalid value: "a b": name part must consist of'),
        ("{labels: {a: '-'}}", 'metadata.labels: Invalid value: "-": a valid label must be an empty string or consist of'),
        ("{annotations: {'/x': y}}", 'metadata.annotations: Invalid value: "/x": prefix part must be non-empty'),
        ("{ownerReferences: [{apiVersion: v1, kind: Pod, name: a}]}", 'metadata.ownerReferences.uid: Invalid value: "": must not be empty'),
        ("{ownerReferences: [{apiVersion: v1/a/b, kind: Pod, name: a, uid: u}]}", 'metadata.ownerReferences.apiVersion: Invalid value: "v1/a/b": version must not be empty'),
        ("{ownerReferences: [{apiVersion: a/, kind: Pod, name: a, uid: u}]}", 'metadata.ownerReferences.apiVersion: Invalid value: "a/": version must not be empty'),
        ("{ownerReferences: [{apiVersion: v1, kind: Event, name: a, uid: u}]}", "metadata.ownerReferences: Invalid value: "),
        ("{finalizers: [odd]}", 'metadata.finalizers: Invalid value: "odd": name is neither a standard finalizer name nor is it fully qualified'),
        ("{finalizers: [orphan, foregroundDeletion]}", "metadata.finalizers: Invalid value: "),
        ("{managedFields: [{operation: Odd}]}", 'metadata.managedFields[0].operation: Invalid value: "Odd": must be `Apply` or `Update`'),
    ],
)  # fmt: skip
def test_metadata(metadata: str, wanted: str) -> None:
    causes = found(ConfigMap, f"{{metadata: {metadata}}}")
    assert len(causes) == 1
    assert causes[0].startswith(wanted)


def test_sizes() -> None:
    big = codec.from_dict(
        {"metadata": {"name": "a", "namespace": "b"}, "data": {"k": "x" * (1024 * 1024 + 1)}}, ConfigMap
    )
    causes = resources.by_message(ConfigMap).validate(big)
    assert [(cause.field, cause.message) for cause in causes] == [
        ("[]", "Too long: may not be more than 1048576 bytes")
    ]
    noted = codec.from_dict(
        {"metadata": {"name": "a", "namespace": "b", "annotations": {"k": "x" * 262144}}}, ConfigMap
    )
    causes = resources.by_message(ConfigMap).validate(noted)
    assert [(cause.field, cause.message) for cause in causes] == [
        ("metadata.annotations", "Too long: may not be more than 262144 bytes")
    ]


AFFINITY = "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{}]}}}}}},"
TERM = "{matchExpressions: [{key: a, operator: Exists}]}"
NARROWER = "{matchExpressions: [{key: a, operator: Exists}, {key: b, operator: Exists}]}"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("", AFFINITY.format(TERM), ""),
        (AFFINITY.format(TERM), AFFINITY.format(NARROWER), ""),
        (AFFINITY.format(NARROWER), AFFINITY.format(TERM), "only additions are allowed"),
        (AFFINITY.format(TERM), AFFINITY.format(f"{TERM}, {TERM}"), "no additions/deletions to non-empty NodeSelectorTerms list"),
        (AFFINITY.format(TERM), "", "no additions/deletions to non-empty NodeSelectorTerms list"),
    ],
)  # fmt: skip
def test_gated_pods_may_be_narrowed(before: str, after: str, problem: str) -> None:
    gate = "schedulingGates: [{name: g}], "
    causes = updated(Pod, pod(gate + before), pod(gate + after))
    assert [problem in cause for cause in causes] == ([True] if problem else [])


def test_a_forbidden_change_is_shown() -> None:
    cause = updated(Pod, pod(), pod("nodeName: n,"))[0]
    assert cause.endswith('\n  core.PodSpec{\n+ \tNodeName: "n",\n  }\n')
