"""A cluster that heals: workloads behind a Service while nodes and components are lost, one after another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GRACE_S, TOLERATION_S = 15, 10


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that are given up soon."""
    cluster = Cluster(f"heal-{os.getpid()}", Path(tmp_path_factory.mktemp("data")))
    settings = ("--node-grace-seconds", str(GRACE_S), "--toleration-seconds", str(TOLERATION_S))
    try:
        cluster.podyard("up", "--build", "--nodes", "3", *settings)
        yield cluster
    finally:
        cluster.podyard("down", check=False)


@pytest.fixture
def web(quick: Cluster) -> Iterator[Cluster]:
    """A Deployment of three behind a Service, and a client pod in the cluster."""
    quick.kubectl("create", "deployment", "web", "--image=nginx", "-r", "3")
    quick.kubectl("expose", "deployment", "web", "--port=80")
    quick.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    yield quick
    quick.kubectl("delete", "deployment,service", "web", "--wait=true", "--timeout=60s")
    quick.eventually(lambda: not pods(quick), "the pods to go", timeout_s=90)


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("pods", "-l", "app=web")["items"]
    return found


def on(cluster: Cluster, node: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods(cluster) if pod["spec"].get("nodeName") == node}


def ready_elsewhere(cluster: Cluster, node: str) -> bool:
    """Whether three pods are ready on other nodes."""
    ready = [
        pod
        for pod in pods(cluster)
        if pod["spec"].get("nodeName") != node
        and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
    ]
    return len(ready) == 3


def node_ready(cluster: Cluster, name: str) -> str:
    node = cluster.get("node", name)
    return next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")


def serving(cluster: Cluster) -> set[str]:
    """Nodes whose pods the Service sends traffic to."""
    slices = cluster.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
    endpoints = [entry for item in slices for entry in item.get("endpoints") or []]
    return {entry["nodeName"] for entry in endpoints if entry["conditions"]["ready"]}


def answers(cluster: Cluster, part: str, times: int = 6) -> bool:
    """Whether the Service answers every time, asked from a node."""
    address = cluster.get("service", "web")["spec"]["clusterIP"]
    command = (
        f"for n in $(seq {times}); do curl -fsS -m 2 -o /dev/null http://{address}/ || exit 1; done; echo all"
    )
    return "all" in cluster.run_in(part, "sh", "-c", command, check=False)


@pytest.mark.parametrize(("breaks", "mends"), [("kill", "start"), ("pause", "resume"), ("partition", "heal")])
def test_a_lost_node_is_replaced_and_comes_back_empty(web: Cluster, breaks: str, mends: str) -> None:
    part = "worker-2"
    node = f"{web.name}-{part}"
    victims = on(web, node)
    assert victims, "the scheduler spreads a deployment over the nodes"

    said = web.podyard("node", breaks, part, "--wait").stderr
    assert f"NotReady in about {GRACE_S} s, eviction {TOLERATION_S} s later" in said
    assert node_ready(web, node) == "Unknown"
    # Its endpoints leave the Service within seconds, long before the pods are given up.
    web.eventually(lambda: node not in serving(web), "the endpoints to leave", timeout_s=10)
    web.eventually(lambda: answers(web, "worker-1"), "the Service to answer")

    web.eventually(lambda: ready_elsewhere(web, node), "replacements", timeout_s=60)
    listed = {pod["metadata"]["name"]: pod for pod in pods(web)}
    assert victims <= set(listed)
    assert all("deletionTimestamp" in listed[name]["metadata"] for name in victims)

    web.podyard("node", mends, part, "--wait")
    web.eventually(lambda: not victims & {pod["metadata"]["name"] for pod in pods(web)}, "old pods to vanish")
    assert on(web, node) == set()
    assert len(pods(web)) == 3
    web.eventually(lambda: answers(web, part), "the Service to answer on the node that is back")


def test_a_node_that_is_back_in_time_keeps_its_pods(web: Cluster) -> None:
    node = f"{web.name}-worker-3"
    before = {pod["metadata"]["uid"] for pod in pods(web)}
    web.podyard("node", "partition", "worker-3")
    web.podyard("node", "partition", "worker-3")  # twice is once
    web.podyard("node", "heal", "worker-3")
    web.eventually(lambda: node_ready(web, node) == "True", "the node")
    assert {pod["metadata"]["uid"] for pod in pods(web)} == before


def test_rollouts_go_on_while_components_are_killed(web: Cluster) -> None:
    for number, part in enumerate(("etcd-1", "apiserver-1", "scheduler-1", "controller-manager-1"), start=2):
        image = "nginx:latest" if number % 2 == 0 else "nginx"
        web.kubectl("set", "image", "deployment/web", f"nginx={image}")
        web.podyard("component", "kill", part)
        web.podyard("component", "start", part)
        web.podyard("up")
        web.kubectl("rollout", "status", "deployment/web", "--timeout=120s", timeout_s=150)
        assert images(web) == {image}
        assert len(live(web)) == 3


def live(cluster: Cluster) -> list[dict[str, Any]]:
    """Pods that are not on their way out."""
    return [pod for pod in pods(cluster) if "deletionTimestamp" not in pod["metadata"]]


def images(cluster: Cluster) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in live(cluster)}


def test_undo_scale_and_delete(web: Cluster) -> None:
    web.kubectl("set", "image", "deployment/web", "nginx=nginx:latest")
    web.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    web.kubectl("rollout", "undo", "deployment/web")
    web.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert images(web) == {"nginx"}
    web.kubectl("scale", "deployment/web", "--replicas=5")
    web.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert len(live(web)) == 5
    history = web.kubectl("rollout", "history", "deployment/web").stdout
    assert "3" in history
    (current,) = [item for item in web.get("rs", "-l", "app=web")["items"] if item["spec"]["replicas"]]
    web.kubectl("delete", "rs", current["metadata"]["name"])
    web.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    described = web.kubectl("describe", "deployment", "web").stdout
    assert "ScalingReplicaSet" in described
    assert "deployment.kubernetes.io/revision: 3" in described


def test_a_service_by_its_name_and_without_endpoints(web: Cluster) -> None:
    address = web.get("service", "web")["spec"]["clusterIP"]
    looked_up = web.run_in(
        "worker-1", "/opt/podyard/venv/bin/python", "-c", _LOOKUP, "web.default.svc.cluster.local"
    )
    assert looked_up.strip() == address
    web.kubectl("scale", "deployment/web", "--replicas=0")
    web.eventually(lambda: not serving(web), "no endpoints")
    refused = web.eventually(
        lambda: web.run_in(
            "worker-1", "sh", "-c", f"curl -sS -m 3 http://{address}/ 2>&1 || true", check=False
        ),
        "an answer",
    )
    # Refused at once (curl's exit code 7), not after a time-out.
    assert "curl: (7)" in refused, refused
    web.kubectl("scale", "deployment/web", "--replicas=3")
    web.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    web.eventually(lambda: answers(web, "worker-1"), "the Service to answer")


def test_a_node_port_leads_to_the_pods_from_any_node(web: Cluster) -> None:
    web.kubectl("patch", "service", "web", "-p", '{"spec":{"type":"NodePort"}}')
    port = web.get("service", "web")["spec"]["ports"][0]["nodePort"]
    assert 30000 <= port <= 32767
    for asked in ("worker-1", "worker-2", "worker-3"):
        url = f"http://{web.name}-{asked}:{port}/"
        web.eventually(
            lambda url=url: "Welcome" in web.run_in("worker-1", "curl", "-sS", "-m", "2", url, check=False),
            f"{asked} to answer",
            timeout_s=20,
        )


_LOOKUP = """
import sys, dns.resolver
resolver = dns.resolver.Resolver(configure=False)
resolver.nameservers = ["10.96.0.10"]
print(resolver.resolve(sys.argv[1], "A")[0].address)
"""
