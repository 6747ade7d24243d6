"""The scenario's second half: workloads behind a Service while nodes and components are lost.

Nodes are given up soon, so that nobody waits; `PODYARD_REAL_TIMES=1` takes the product's own 50 s and 300 s.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.live import Live, docker
from tests.cluster.scenario import (
    MOST,
    REPLICAS,
    History,
    deployment,
    etcd_leader,
    is_ready,
    pods,
    service,
    staying,
)
from tests.cluster.support import Cluster, brought_up

REAL_TIMES = bool(os.environ.get("PODYARD_REAL_TIMES"))
GRACE_S, TOLERATION_S = (50, 300) if REAL_TIMES else (15, 10)
# What happens after the times themselves are over.
SLACK_S = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + GRACE_S + TOLERATION_S)]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes."""
    settings = ("--node-grace-seconds", str(GRACE_S), "--toleration-seconds", str(TOLERATION_S))
    options = ("--build", "--nodes", "3", *(() if REAL_TIMES else settings))
    with brought_up(f"lossy-{os.getpid()}", tmp_path_factory.mktemp("data"), *options) as cluster:
        yield cluster


@pytest.fixture
def web(quick: Cluster) -> Iterator[Cluster]:
    """A Deployment of three behind a Service."""
    quick.podyard("up")
    # A node that is Ready again loses its taints a moment later; until then it takes no pod.
    taints = ("get", "nodes", "-o", "jsonpath={.items[*].spec.taints}")
    quick.eventually(lambda: not quick.kubectl(*taints).stdout, "no taints")
    quick.apply(deployment("web", careful=True), service("web"))
    quick.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    yield quick
    quick.kubectl("delete", "deployment,service", "web", "--wait=true", "--timeout=60s")
    quick.eventually(lambda: not pods(quick, "web"), "the pods to go", timeout_s=90)


def on(cluster: Cluster, node: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods(cluster, "web") if pod["spec"].get("nodeName") == node}


def ready_elsewhere(cluster: Cluster, node: str) -> bool:
    """Whether three pods are ready on other nodes."""
    ready = [pod for pod in pods(cluster, "web") if pod["spec"].get("nodeName") != node and is_ready(pod)]
    return len(ready) == REPLICAS


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


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [("kill", "start"), ("docker kill", "docker start"), ("pause", "resume"), ("partition", "heal")],
)
def test_a_lost_node_is_replaced_and_comes_back_empty(web: Cluster, breaks: str, mends: str) -> None:
    part = "worker-2"
    node = f"{web.name}-{part}"
    victims = on(web, node)
    assert victims, "the scheduler spreads a deployment over the nodes"

    lose(web, breaks, part)
    assert node_ready(web, node) == "Unknown"
    # Its endpoints leave the Service within seconds, long before the pods are given up.
    web.eventually(lambda: node not in serving(web), "the endpoints to leave", timeout_s=10)
    web.eventually(lambda: answers(web, "worker-1"), "the Service to answer")
    if REAL_TIMES:
        assert not any("deletionTimestamp" in pod["metadata"] for pod in pods(web, "web"))

    web.eventually(lambda: ready_elsewhere(web, node), "replacements", timeout_s=TOLERATION_S + SLACK_S)
    listed = {pod["metadata"]["name"]: pod for pod in pods(web, "web")}
    assert victims <= set(listed)
    assert all("deletionTimestamp" in listed[name]["metadata"] for name in victims)
    remaining = {pod["metadata"]["uid"] for pod in staying(pods(web, "web"))}

    bring_back(web, mends, part)
    web.eventually(lambda: len(pods(web, "web")) == REPLICAS, "old pods to vanish")
    assert {pod["metadata"]["uid"] for pod in pods(web, "web")} == remaining
    assert on(web, node) == set()
    web.eventually(lambda: answers(web, part), "the Service to answer on the node that is back")


def lose(cluster: Cluster, verb: str, part: str) -> None:
    """Returns when the node is NotReady."""
    node = f"{cluster.name}-{part}"
    if verb.startswith("docker"):
        docker("kill", node)
        unknown = lambda: node_ready(cluster, node) == "Unknown"  # noqa: E731
        cluster.eventually(unknown, "NotReady", timeout_s=GRACE_S + SLACK_S)
        return
    said = cluster.podyard("node", verb, part, "--wait").stderr
    assert f"NotReady in about {GRACE_S} s, eviction {TOLERATION_S} s later" in said


def bring_back(cluster: Cluster, verb: str, part: str) -> None:
    """Returns when the node is Ready."""
    node = f"{cluster.name}-{part}"
    if verb.startswith("docker"):
        docker("start", node)
        cluster.eventually(lambda: node_ready(cluster, node) == "True", "Ready")
        return
    cluster.podyard("node", verb, part, "--wait")


def test_a_node_that_is_back_in_time_keeps_its_pods(web: Cluster) -> None:
    node = f"{web.name}-worker-3"
    before = {pod["metadata"]["uid"] for pod in pods(web, "web")}
    web.podyard("node", "partition", "worker-3")
    web.podyard("node", "partition", "worker-3")  # twice is once
    web.podyard("node", "heal", "worker-3")
    web.eventually(lambda: node_ready(web, node) == "True", "the node")
    assert {pod["metadata"]["uid"] for pod in pods(web, "web")} == before


@pytest.mark.parametrize("role", ["etcd", "apiserver", "scheduler", "controller-manager"])
def test_a_rollout_completes_while_a_component_is_killed(web: Cluster, role: str) -> None:
    live = Live(web.name, web.data)
    with History(live, "default", "web").recorded() as history:
        # kill -9 of the process: its supervisor starts it again.
        rolled_out(web, lambda: live.kill(live.container(instance_of(live, role)), role))
        # Power loss of the container: it stays dead until somebody starts it.
        rolled_out(web, lambda: killed_for(web, instance_of(live, role), 10))
        web.eventually(lambda: len(pods(web, "web")) == REPLICAS, "the old pods to end")
    assert history.bounds() == (MOST, REPLICAS)


def instance_of(live: Live, role: str) -> str:
    """The container to kill: of etcd the leader."""
    return etcd_leader(live) if role == "etcd" else f"{role}-1"


def killed_for(cluster: Cluster, part: str, seconds: float) -> None:
    cluster.podyard("component", "kill", part)
    cluster.podyard("component", "kill", part)  # twice is once
    time.sleep(seconds)  # how long it is away is what the scenario says
    cluster.podyard("component", "start", part)


def rolled_out(cluster: Cluster, meanwhile: Callable[[], object]) -> None:
    """Changes the template, lets something happen, and waits for the new pods to be there alone."""
    before = {pod["metadata"]["uid"] for pod in pods(cluster, "web")}
    cluster.kubectl("rollout", "restart", "deployment/web")
    meanwhile()

    def complete() -> bool:
        # Nobody may answer for a while.
        said = cluster.kubectl("get", "pods", "-l", "app=web", "-o", "json", check=False)
        if said.returncode != 0:
            return False
        found = staying(json.loads(said.stdout)["items"])
        fresh = [pod for pod in found if pod["metadata"]["uid"] not in before]
        return len(found) == REPLICAS and len(fresh) == REPLICAS and all(is_ready(pod) for pod in fresh)

    cluster.eventually(complete, "the rollout to complete", timeout_s=120)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")


def test_scaling_and_history(web: Cluster) -> None:
    web.kubectl("set", "image", "deployment/web", "nginx=nginx:latest")
    web.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    web.kubectl("scale", "deployment/web", "--replicas=5")
    web.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert len(staying(pods(web, "web"))) == 5
    history = web.kubectl("rollout", "history", "deployment/web").stdout.split()
    assert {"1", "2"} <= set(history)


def test_a_service_by_its_name_and_without_endpoints(web: Cluster) -> None:
    address = web.get("service", "web")["spec"]["clusterIP"]
    looked_up = web.run_in(
        "worker-1", "/opt/podyard/venv/bin/python", "-c", _LOOKUP, "web.default.svc.cluster.local"
    )
    assert looked_up.strip() == address
    web.kubectl("scale", "deployment/web", "--replicas=0")
    web.eventually(lambda: not serving(web), "no endpoints")
    # Pods that serve on while they end are still asked; then it is refused at once (curl's exit code
    # 7), not after a time-out.
    ask = ("sh", "-c", f"curl -sS -m 3 -o /dev/null http://{address}/ 2>&1 || true")
    web.eventually(lambda: "curl: (7)" in web.run_in("worker-1", *ask), "to be refused")
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
        )


_LOOKUP = """
import sys, dns.resolver
resolver = dns.resolver.Resolver(configure=False)
resolver.nameservers = ["10.96.0.10"]
print(resolver.resolve(sys.argv[1], "A")[0].address)
"""
