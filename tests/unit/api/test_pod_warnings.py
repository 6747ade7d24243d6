# ruff: noqa: E501 - tables
"""Warnings of pods that are taken, in upstream's words."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.api import codec, pod_warnings
from podyard.api.types import ObjectMeta, Pod, PodSpec, PodTemplateSpec

OLD_ZONE = 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
NO_SELECTOR = "a null labelSelector results in matching no pod"
HIDES = 'hides previous definition of "A", which may be dropped when using apply'


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, []),
        (
            {"nodeSelector": {"failure-domain.beta.kubernetes.io/zone": "a", "kubernetes.io/os": "linux"}},
            [f"spec.nodeSelector[failure-domain.beta.kubernetes.io/zone]: {OLD_ZONE}"],
        ),
        (
            {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
                    "matchExpressions": [{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]}}],
            }}},
            [
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: "
                'beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead',
                "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: "
                'node-role.kubernetes.io/master is use "node-role.kubernetes.io/control-plane" instead',
            ],
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "failure-domain.beta.kubernetes.io/zone"}]},
            [
                f"spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is {OLD_ZONE}",
                f"spec.topologySpreadConstraints[0].labelSelector: {NO_SELECTOR}",
            ],
        ),
        (
            {"volumes": [{"name": "v", "gitRepo": {"repository": "r"}}, {"name": "w", "rbd": {"image": "i"}}]},
            ["spec.volumes[0].gitRepo: deprecated in v1.11", "spec.volumes[1].rbd: deprecated in v1.28, non-functional in v1.31+"],
        ),
        (
            {"hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}], "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
            [
                'spec.hostAliases[1].ip: duplicate ip "1.1.1.1"',
                'spec.imagePullSecrets[1].name: duplicate name "a"',
                'spec.imagePullSecrets[2].name: invalid empty name ""',
            ],
        ),
        (
            {"initContainers": [{"name": "i", "resources": {"limits": {"memory": "1500m", "cpu": "1500m"}}}],
             "containers": [{"name": "c", "resources": {"requests": {"memory": "1", "ephemeral-storage": "100m"}}}],
             "overhead": {"memory": "1m"}},
            [
                'spec.overhead[memory]: fractional byte value "1m" is invalid, must be an integer',
                'spec.initContainers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer',
                'spec.containers[0].resources.requests[ephemeral-storage]: fractional byte value "100m" is invalid, must be an integer',
            ],
        ),
        (
            {"containers": [{"name": "c", "env": [
                {"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "$(A)"},
                {"name": "A", "value": "3"}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}]},
            [f"spec.containers[0].env[{index}]: {HIDES}" for index in (2, 3, 4)],
        ),
        (
            {"containers": [
                {"name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]},
                {"name": "d", "ports": [
                    {"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "hostPort": 81, "protocol": "TCP"},
                    {"name": "x", "containerPort": 9, "hostIP": "1.2.3.4", "protocol": "TCP"}]}]},
            [
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[1]: overlapping port definition with spec.containers[1].ports[0]",
                "spec.containers[1].ports[2]: hostIP set without hostPort: {Name:x HostPort:0 ContainerPort:9 Protocol:TCP HostIP:1.2.3.4}",
            ],
        ),
        (
            {"containers": [{"name": "c", "ports": [
                {"containerPort": 80, "hostPort": 1, "protocol": "TCP"}, {"containerPort": 80, "hostPort": 1, "hostIP": "1.1.1.1", "protocol": "TCP"},
                {"containerPort": 80, "hostPort": 2, "protocol": "TCP"}]}]},
            ["spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]"],
        ),
        (
            {"terminationGracePeriodSeconds": -1},
            ["spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"],
        ),
        (
            {"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}, {"topologyKey": "a", "labelSelector": {}}],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "a"}}]}}},
            [
                f"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: {NO_SELECTOR}",
                f"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: {NO_SELECTOR}",
            ],
        ),
    ],
)  # fmt: skip
def test_specs(spec: dict[str, Any], wanted: list[str]) -> None:
    message = codec.decode_value(spec, PodSpec).message
    assert pod_warnings.pod(Pod(metadata={"name": "web"}, spec=message)) == wanted
    inside = pod_warnings.template(PodTemplateSpec(spec=message), "spec.template")
    placed = [text.replace(" with spec.", " with spec.template.spec.") for text in wanted]
    assert inside == [f"spec.template.{text}" for text in placed]


def test_annotations() -> None:
    keys = (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "seccomp.security.alpha.kubernetes.io/pod",
        "container.seccomp.security.alpha.kubernetes.io/main",
    )
    metadata = ObjectMeta(name="web", annotations=dict.fromkeys(keys, "x"))
    spec = {"containers": [{"name": "main"}]}
    assert pod_warnings.pod(Pod(metadata=metadata, spec=spec)) == [
        f'metadata.annotations[{keys[0]}]: non-functional in v1.16+; use the "priorityClassName" field instead',
        *(
            f'metadata.annotations[{key}]: non-functional in v1.27+; use the "seccompProfile" field instead'
            for key in keys[1:]
        ),
    ]
    with_field = Pod(
        metadata=metadata, spec={**spec, "securityContext": {"seccompProfile": {"type": "Unconfined"}}}
    )
    assert len(pod_warnings.pod(with_field)) == 2


def test_names() -> None:
    text = "which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
    assert pod_warnings.pod(Pod(metadata={"name": "a.b"})) == [
        f"metadata.name: this is used in the Pod's hostname, {text}"
    ]
