"""What a pod's containers find: what ran before them, their environment, their files and their names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Prints all that the test looks at as `NAME=VALUE` lines, and waits.
SHOW = """
echo "order=$(cat /shared/order | tr '\\n' ' ')"
echo "env.plain=$PLAIN"; echo "env.composed=$COMPOSED"; echo "env.escaped=$ESCAPED"
echo "env.config=$FROM_CONFIG"; echo "env.secret=$FROM_SECRET"
echo "env.absent=${ABSENT-unset}"; echo "env.prefixed=$CFG_color $CFG_size"; echo "env.token=$token"
echo "env.name=$POD_NAME"; echo "env.namespace=$POD_NAMESPACE"; echo "env.node=$NODE"; echo "env.ip=$POD_IP"
echo "env.host=$HOST_IP"; echo "env.label=$TIER"; echo "env.account=$ACCOUNT"; echo "env.uid=$POD_UID"
echo "env.cpu=$CPU_LIMIT"; echo "env.memory=$MEMORY_REQUEST"
echo "service.host=$ECHO_SERVICE_HOST"; echo "service.port=$ECHO_SERVICE_PORT"
echo "service.named=$ECHO_SERVICE_PORT_WEB"
echo "service.link=$ECHO_PORT_80_TCP_ADDR $ECHO_PORT_80_TCP_PORT $ECHO_PORT_80_TCP_PROTO"
echo "service.kubernetes=$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT"
echo "file.downward=$(cat /info/labels)"; echo "file.cpu=$(cat /info/cpu)"
echo "file.projected=$(ls -1 /all /all/deep | tr '\\n' ' ')"; echo "file.config=$(cat /all/deep/size)"
echo "file.mode=$(stat -L -c %a /all/deep/size) $(stat -L -c %a /all/secret)"
echo "file.token=$(cut -d. -f1 /all/token | wc -c)"
echo "hosts.own=$(grep -c "$POD_IP" /etc/hosts)"
echo "hosts.alias=$(grep 10.1.2.3 /etc/hosts | tr '\\t' ' ')"
echo "dns=$(tr '\\n' ' ' < /etc/resolv.conf)"; echo "hostname=$(hostname)"
echo "account=$(ls /var/run/secrets/kubernetes.io/serviceaccount | tr '\\n' ' ')"
echo done; exec sleep 3600
"""


def field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def resource(name: str, divisor: str) -> dict[str, Any]:
    reference = {"resource": name, "divisor": divisor, "containerName": "main"}
    return {"valueFrom": {"resourceFieldRef": reference}}


ENV: list[dict[str, Any]] = [
    {"name": "PLAIN", "value": "one"},
    {"name": "COMPOSED", "value": "$(PLAIN)-two-$(NOBODY)"},
    {"name": "ESCAPED", "value": "$$(PLAIN)"},
    {"name": "FROM_CONFIG", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
    {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "secrets", "key": "token"}}},
    {"name": "ABSENT", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
    {"name": "POD_NAME", **field("metadata.name")},
    {"name": "POD_NAMESPACE", **field("metadata.namespace")},
    {"name": "POD_UID", **field("metadata.uid")},
    {"name": "NODE", **field("spec.nodeName")},
    {"name": "ACCOUNT", **field("spec.serviceAccountName")},
    {"name": "POD_IP", **field("status.podIP")},
    {"name": "HOST_IP", **field("status.hostIP")},
    {"name": "TIER", **field("metadata.labels['tier']")},
    {"name": "CPU_LIMIT", **resource("limits.cpu", "1m")},
    {"name": "MEMORY_REQUEST", **resource("requests.memory", "1Mi")},
]
DOWNWARD = [
    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
    {"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m", "containerName": "main"}},
]
PROJECTED: list[dict[str, Any]] = [
    {"configMap": {"name": "settings", "items": [{"key": "size", "path": "deep/size", "mode": 0o400}]}},
    {"secret": {"name": "secrets", "items": [{"key": "token", "path": "secret"}]}},
    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    {"serviceAccountToken": {"path": "token", "audience": "somebody", "expirationSeconds": 600}},
]


def init_container(name: str) -> dict[str, Any]:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    command = ["sh", "-c", f"echo {name} >> /shared/order"]
    return {"name": name, "image": "busybox", "command": command, "volumeMounts": mounts}


def the_pod() -> dict[str, Any]:
    main = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", SHOW],
        "env": ENV,
        "envFrom": [
            {"prefix": "CFG_", "configMapRef": {"name": "settings"}},
            {"secretRef": {"name": "secrets"}},
            {"configMapRef": {"name": "none", "optional": True}},
        ],
        "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"memory": "32Mi"}},
        "volumeMounts": [
            {"name": "shared", "mountPath": "/shared", "readOnly": True},
            {"name": "info", "mountPath": "/info"},
            {"name": "all", "mountPath": "/all", "readOnly": True},
        ],
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "initContainers": [init_container("first"), init_container("second")],
        "containers": [main],
        "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["old.example", "older.example"]}],
        "dnsConfig": {"searches": ["more.example"], "options": [{"name": "ndots", "value": "3"}]},
        "volumes": [
            {"name": "shared", "emptyDir": {}},
            {"name": "info", "downwardAPI": {"items": DOWNWARD}},
            {"name": "all", "projected": {"defaultMode": 0o444, "sources": PROJECTED}},
        ],
    }
    metadata = {"name": "content", "labels": {"tier": "front", "app": "content"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def said(cluster: Cluster, namespace: str) -> dict[str, str]:
    """What the pod printed; with `service`, `pod` and `namespace` as kubectl shows them."""
    settings = {"kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": "red", "size": "9"}}
    secrets = {"kind": "Secret", "metadata": {"name": "secrets"}, "stringData": {"token": "s3cret"}}
    ports = [{"name": "web", "port": 80, "targetPort": 8080}]
    echo = {"kind": "Service", "metadata": {"name": "echo"}, "spec": {"selector": {"a": "b"}, "ports": ports}}
    objects = [{"apiVersion": "v1", **obj} for obj in (settings, secrets, echo)]
    for wanted in (objects, [the_pod()]):
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=body)
    cluster.pod_running("content", namespace)

    def logged() -> str:
        text = cluster.kubectl("logs", "content", "-n", namespace).stdout
        return text if text.endswith("done\n") else ""

    lines = cluster.eventually(logged, "the log").splitlines()[:-1]
    return dict(line.split("=", 1) for line in lines)


def test_a_pod_finds_all_that_its_spec_promises(
    cluster: Cluster, namespace: str, said: dict[str, str]
) -> None:
    pod = cluster.get("pod", "content", "-n", namespace)
    service = cluster.get("service", "echo", "-n", namespace)["spec"]["clusterIP"]
    api = cluster.get("service", "kubernetes")["spec"]["clusterIP"]
    address, metadata = pod["status"]["podIP"], pod["metadata"]
    assert said == {
        "order": "first second ",
        "env.plain": "one",
        "env.composed": "one-two-$(NOBODY)",
        "env.escaped": "$(PLAIN)",
        "env.config": "red",
        "env.secret": "s3cret",
        "env.absent": "unset",
        "env.prefixed": "red 9",
        "env.token": "s3cret",
        "env.name": "content",
        "env.namespace": namespace,
        "env.uid": metadata["uid"],
        "env.node": pod["spec"]["nodeName"],
        "env.ip": address,
        "env.host": pod["status"]["hostIP"],
        "env.label": "front",
        "env.account": "default",
        "env.cpu": "250",
        "env.memory": "32",
        "service.host": service,
        "service.port": "80",
        "service.named": "80",
        "service.link": f"{service} 80 tcp",
        "service.kubernetes": f"{api}:443",
        "file.downward": 'app="content"',  # and a line more, which is no NAME=VALUE of the test's
        "file.cpu": "250",
        "file.projected": "/all: deep name secret token  /all/deep: size ",
        "file.config": "9",
        "file.mode": "400 444",
        "file.token": said["file.token"],
        "hosts.own": "1",
        "hosts.alias": "10.1.2.3 old.example older.example",
        "dns": f"search {namespace}.svc.cluster.local svc.cluster.local cluster.local more.example "
        "nameserver 10.96.0.10 options ndots:3 ",
        "hostname": "content",
        "account": "ca.crt namespace token ",
        "tier": '"front"',
    }
    assert int(said["file.token"]) > 20
    states = pod["status"]["initContainerStatuses"]
    assert [state["state"]["terminated"]["reason"] for state in states] == ["Completed", "Completed"]


def test_files_follow_their_sources(cluster: Cluster, namespace: str, said: dict[str, str]) -> None:
    assert said["file.config"] == "9"
    cluster.kubectl("label", "pod", "content", "tier=back", "--overwrite", "-n", namespace)
    node = cluster.get("pod", "content", "-n", namespace)["spec"]["nodeName"].removeprefix(f"{cluster.name}-")
    uid = cluster.get("pod", "content", "-n", namespace)["metadata"]["uid"]
    labels = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~downward-api/info/labels"
    cluster.eventually(lambda: 'tier="back"' in cluster.run_in(node, "cat", labels), "the label in the file")
    patch = '{"data":{"size":"10"}}'
    cluster.kubectl("patch", "configmap", "settings", "-p", patch, "-n", namespace)
    size = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected/all/deep/size"
    # Read again every minute to minute and a half, as upstream's syncFrequency.
    cluster.eventually(lambda: cluster.run_in(node, "cat", size) == "10", "the new size", timeout_s=150)
