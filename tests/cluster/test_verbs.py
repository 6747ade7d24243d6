"""The verbs on components and nodes: what each breaks, what goes on without it, and that it mends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.live import Live
from tests.cluster.scenario import etcd_leader
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WAYS = [("stop", "start"), ("pause", "resume"), ("partition", "heal")]


def run_pod(cluster: Cluster, namespace: str, name: str) -> None:
    container = {"name": "main", "image": "busybox", "command": ["sleep", "3600"]}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    cluster.apply(pod)


def twice(cluster: Cluster, *verb: str) -> str:
    """A verb, and once more: that is the same. Answers what was said."""
    said = cluster.podyard(*verb).stderr
    cluster.podyard(*verb)
    return said


@pytest.mark.parametrize(("breaks", "mends"), WAYS)
def test_without_the_scheduler_pods_stay_pending(
    cluster: Cluster, namespace: str, breaks: str, mends: str
) -> None:
    twice(cluster, "component", breaks, "scheduler-1")
    run_pod(cluster, namespace, "waits")
    # All else works, for as long as it takes to make and run a pod that needs no scheduler.
    placed = {"name": "main", "image": "busybox", "command": ["sleep", "3600"]}
    node = f"{cluster.name}-worker-1"
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [placed]}
    metadata = {"name": "placed", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.pod_running("placed", namespace)
    assert "nodeName" not in cluster.get("pod", "waits", "-n", namespace)["spec"]
    twice(cluster, "component", mends, "scheduler-1")
    cluster.pod_running("waits", namespace)


@pytest.mark.parametrize(("breaks", "mends"), WAYS)
def test_without_the_controller_manager_nothing_is_replaced(
    cluster: Cluster, namespace: str, breaks: str, mends: str
) -> None:
    cluster.kubectl("create", "deployment", "web", "--image=nginx", "-n", namespace)
    cluster.kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout=60s")
    twice(cluster, "component", breaks, "controller-manager-1")
    cluster.kubectl("delete", "pod", "-l", "app=web", "-n", namespace, "--timeout=60s")
    cluster.kubectl("scale", "deployment/web", "--replicas=2", "-n", namespace)
    assert cluster.get("pods", "-n", namespace)["items"] == []
    twice(cluster, "component", mends, "controller-manager-1")
    cluster.kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout=90s")
    assert len(cluster.get("pods", "-n", namespace)["items"]) == 2


@pytest.mark.parametrize(("breaks", "mends"), WAYS)
def test_without_the_api_server_pods_run_on(
    cluster: Cluster, live: Live, namespace: str, breaks: str, mends: str
) -> None:
    run_pod(cluster, namespace, "stays")
    before = cluster.pod_running("stays", namespace)
    said = twice(cluster, "component", breaks, "apiserver-1")
    assert cluster.container("apiserver-1").name in said
    if breaks == "stop":
        refused = cluster.kubectl("get", "pods", check=False)
        assert refused.returncode == 1
        assert "was refused" in refused.stderr
    ident = before["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    tasks = live.in_container(before["spec"]["nodeName"], "ctr", "-n", "k8s.io", "tasks", "ls")
    assert any(line.split()[0] == ident and "RUNNING" in line for line in tasks.splitlines())
    twice(cluster, "component", mends, "apiserver-1")
    cluster.podyard("up")
    after = cluster.pod_running("stays", namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.parametrize(("breaks", "mends"), [*WAYS, ("kill", "start")])
def test_one_etcd_member_is_not_missed(
    cluster: Cluster, live: Live, namespace: str, breaks: str, mends: str
) -> None:
    part = etcd_leader(live)
    twice(cluster, "component", breaks, part)
    write = ("create", "configmap", "written", "--from-literal=a=1", "-n", namespace)

    def written() -> bool:
        # A write whose answer was lost has happened all the same.
        done = cluster.kubectl(*write, check=False)
        return done.returncode == 0 or "already exists" in done.stderr

    cluster.eventually(written, "a write")
    twice(cluster, "component", mends, part)
    assert cluster.get("configmap", "written", "-n", namespace)["data"] == {"a": "1"}


def test_a_node_is_added_and_taken_away_again(cluster: Cluster, namespace: str) -> None:
    third = f"{cluster.name}-worker-3"
    try:
        cluster.podyard("node", "add")
        assert ready(cluster)[third] == "True"
        spec: dict[str, Any] = {"nodeName": third, "containers": [{"name": "main", "image": "nginx"}]}
        metadata = {"name": "there", "namespace": namespace}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        cluster.pod_running("there", namespace)
        refused = cluster.podyard("node", "remove", "worker-1", check=False)
        assert refused.returncode != 0
        assert "not the last node" in refused.stderr
    finally:
        cluster.podyard("node", "remove", "worker-3")
    assert set(ready(cluster)) == {f"{cluster.name}-worker-{number}" for number in (1, 2)}
    gone = ("get", "pod", "there", "-n", namespace, "--ignore-not-found", "-o", "name")
    cluster.eventually(lambda: not cluster.kubectl(*gone).stdout, "the node's pod to go")


@pytest.mark.parametrize("back", [("node", "start", "worker-2", "--wait"), ("up",)])
def test_a_node_counts_as_back_once_its_kubelet_speaks(
    cluster: Cluster, live: Live, back: tuple[str, ...]
) -> None:
    node = f"{cluster.name}-worker-2"
    lease = ("lease", node, "-n", "kube-node-lease")
    cluster.podyard("node", "kill", "worker-2")
    before = cluster.get(*lease)["spec"]["renewTime"]
    # Within the grace the API server still calls it Ready.
    assert ready(cluster)[node] == "True"
    cluster.podyard(*back)
    assert cluster.get(*lease)["spec"]["renewTime"] > before
    assert live.pids(node, "kubelet")


@pytest.mark.parametrize("role", ["etcd", "apiserver", "scheduler", "controller-manager"])
def test_a_component_counts_as_back_once_it_calls_itself_ready(cluster: Cluster, role: str) -> None:
    name = f"{cluster.name}-{role}-1"

    def shown() -> list[str]:
        lines = cluster.podyard("status", check=False).stdout.splitlines()
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        return line.split()[2:5]

    cluster.podyard("component", "kill", f"{role}-1")
    assert shown() == ["exited", "no:", "exited"]
    said = cluster.podyard("component", "start", f"{role}-1", "--wait").stderr
    assert f"{name}: Ready after" in said
    assert shown()[:2] == ["running", "yes"]


def test_a_cut_is_shown_and_another_way_back_says_what_is_needed(cluster: Cluster) -> None:
    def shown() -> str:
        lines = cluster.podyard("status", check=False).stdout.splitlines()
        return next(line for line in lines if line.startswith(f"{cluster.name}-worker-2"))

    cluster.podyard("node", "partition", "worker-2")
    assert "no: cut off by partition" in shown()
    told = cluster.podyard("node", "start", "worker-2").stderr
    assert f"it is cut off; next: podyard --name {cluster.name} node heal worker-2" in told
    refused = cluster.podyard("node", "resume", "worker-2", "--wait", check=False)
    assert (refused.returncode, "cannot become Ready: it is cut off" in refused.stderr) == (5, True)
    cluster.podyard("node", "heal", "worker-2", "--wait")
    assert "cut off" not in shown()


def ready(cluster: Cluster) -> dict[str, str]:
    """Node -> its Ready condition."""
    found = {}
    for node in json.loads(cluster.kubectl("get", "nodes", "-o", "json").stdout)["items"]:
        (state,) = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        found[node["metadata"]["name"]] = state
    return found
