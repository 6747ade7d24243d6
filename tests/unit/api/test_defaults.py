# ruff: noqa: E501 -- one case a line
"""What the server fills in."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.api import codec, pod_defaults, pod_resources, resources
from podyard.api.types import (
    Endpoints,
    EndpointSlice,
    Message,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Secret,
    Service,
)


def defaulted(cls: type[Message], value: dict[str, Any]) -> dict[str, Any]:
    obj = codec.from_dict(value, cls)
    resources.by_message(cls).defaults(obj)
    return codec.to_dict(obj)


def test_a_minimal_pod() -> None:
    assert defaulted(Pod, {"spec": {"containers": [{"name": "c", "image": "nginx"}]}})["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/a/nginx:2", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("nginx:latest@sha256:0123", "Always"),
        ("", "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert pod_defaults.pull_policy(image) == policy


def test_containers_of_a_pod() -> None:
    container = {
        "name": "c",
        "image": "a:1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1000m", "memory": "1Mi"}, "requests": {"memory": "512Ki"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"grpc": {"port": 1}, "periodSeconds": 3},
        "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
    }
    made = defaulted(Pod, {"spec": {"hostNetwork": True, "containers": [container]}})["spec"]["containers"][0]
    assert made["ports"] == [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]
    assert made["resources"] == {
        "limits": {"cpu": "1", "memory": "1Mi"},
        "requests": {"cpu": "1", "memory": "512Ki"},
    }
    assert made["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    probe = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    http = {"path": "/", "port": 80, "scheme": "HTTP"}
    assert made["livenessProbe"] == {**probe, "httpGet": http}
    assert made["readinessProbe"] == {**probe, "periodSeconds": 3, "grpc": {"port": 1, "service": ""}}
    assert made["lifecycle"]["preStop"]["httpGet"] == http


def test_volumes() -> None:
    volumes = [
        {"name": "a"},
        {"name": "b", "hostPath": {"path": "/x"}},
        {"name": "c", "configMap": {"name": "m"}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "e", "iscsi": {"targetPortal": "p", "iqn": "q", "lun": 0}},
        {"name": "f", "image": {"reference": "x:1"}},
    ]
    made = defaulted(Pod, {"spec": {"containers": [], "volumes": volumes}})["spec"]["volumes"]
    assert made[0] == {"name": "a", "emptyDir": {}}
    assert made[1]["hostPath"] == {"path": "/x", "type": ""}
    assert made[2]["configMap"] == {"name": "m", "defaultMode": 0o644}
    token = {"path": "t", "expirationSeconds": 3600}
    assert made[3]["projected"] == {"sources": [{"serviceAccountToken": token}], "defaultMode": 0o644}
    assert made[4]["iscsi"]["iscsiInterface"] == "default"
    assert made[5]["image"]["pullPolicy"] == "IfNotPresent"


def test_twin_fields_agree() -> None:
    pod = defaulted(Pod, {"spec": {"containers": [], "serviceAccount": "sa"}, "status": {"podIP": "1.2.3.4"}})
    assert (pod["spec"]["serviceAccountName"], pod["status"]["podIPs"]) == ("sa", [{"ip": "1.2.3.4"}])
    node = defaulted(Node, {"spec": {"podCIDR": "10.0.0.0/24"}})
    assert node["spec"]["podCIDRs"] == ["10.0.0.0/24"]
    # The newer field alone says both; against the older one it does not count.
    for ips, ip, wanted in (
        (["1.1.1.1", "::1"], "", ["1.1.1.1", "::1"]),
        (["1.1.1.1", "::1"], "2.2.2.2", ["2.2.2.2"]),
    ):
        status = {"podIPs": [{"ip": each} for each in ips], **({"podIP": ip} if ip else {})}
        pod = defaulted(Pod, {"spec": {"containers": []}, "status": status})
        assert [item["ip"] for item in pod["status"]["podIPs"]] == wanted
        assert pod["status"]["podIP"] == wanted[0]
        cidrs = [f"{each}/24" for each in ips]
        node = defaulted(Node, {"spec": {"podCIDRs": cidrs, **({"podCIDR": f"{ip}/24"} if ip else {})}})
        assert node["spec"]["podCIDRs"] == [f"{each}/24" for each in wanted]
        assert node["spec"]["podCIDR"] == f"{wanted[0]}/24"


def test_node_allocatable_is_capacity_at_first() -> None:
    node = defaulted(Node, {"status": {"capacity": {"cpu": "4"}}})
    assert node["status"]["allocatable"] == {"cpu": "4"}


@pytest.mark.parametrize(
    ("cls", "value", "part", "wanted"),
    [
        (Secret, {"stringData": {"a": "b"}, "data": {"c": "ZA=="}}, "data", {"a": "Yg==", "c": "ZA=="}),
        (Secret, {}, "type", "Opaque"),
        (Namespace, {"metadata": {"name": "n"}}, "metadata",
         {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}),
        (Namespace, {}, "status", {"phase": "Active"}),
        (PriorityClass, {"value": 1}, "preemptionPolicy", "PreemptLowerPriority"),
        (Endpoints, {"subsets": [{"ports": [{"port": 1}]}]}, "subsets", [{"ports": [{"port": 1, "protocol": "TCP"}]}]),
        (EndpointSlice, {"ports": [{"port": 1}]}, "ports", [{"name": "", "protocol": "TCP", "port": 1}]),
    ],
)  # fmt: skip
def test_other_kinds(cls: type[Message], value: dict[str, Any], part: str, wanted: Any) -> None:
    assert defaulted(cls, value)[part] == wanted


def test_services() -> None:
    made = defaulted(Service, {"spec": {"ports": [{"port": 80}], "clusterIP": "10.96.0.1"}})["spec"]
    assert made == {
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
        "clusterIP": "10.96.0.1",
        "clusterIPs": ["10.96.0.1"],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }
    made = defaulted(Service, {"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}})["spec"]
    assert made["allocateLoadBalancerNodePorts"] is True
    assert made["externalTrafficPolicy"] == "Cluster"
    assert made["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


def requests_of(**spec: Any) -> dict[str, str]:
    pod = codec.from_dict({"spec": spec}, Pod)
    return {name: str(amount) for name, amount in sorted(pod_resources.requests(pod.spec).items())}


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def test_effective_requests() -> None:
    assert requests_of(containers=[container("1"), container("500m")]) == {"cpu": "1500m"}
    # Init containers run one after the other, before the others.
    assert requests_of(containers=[container("1")], initContainers=[container("3"), container("2")]) == {
        "cpu": "3"
    }
    # A sidecar runs beside all that comes after it.
    sidecar = container("1", restartPolicy="Always")
    assert requests_of(containers=[container("1")], initContainers=[sidecar, container("2")]) == {"cpu": "3"}
    assert requests_of(containers=[container("1")], overhead={"cpu": "100m"}) == {"cpu": "1100m"}
    assert requests_of(containers=[container("1")], resources={"requests": {"cpu": "4"}}) == {"cpu": "4"}


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"requests": {"cpu": "0", "ephemeral-storage": "1Gi"}}], "BestEffort"),
    ],
)  # fmt: skip
def test_quality_of_service(listed: list[dict[str, Any]], wanted: str) -> None:
    pod = codec.from_dict(
        {"spec": {"containers": [{"name": "c", "resources": item} for item in listed]}}, Pod
    )
    assert pod_resources.qos_class(pod) == wanted
