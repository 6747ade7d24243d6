"""`kubectl drain` on a real cluster: pods move, a budget holds them back, `uncordon` takes pods again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LABELS = {"app": "drained"}
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data")
REPLICAS = 3


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[str]:
    """The node that the test drains; taken back into service afterwards."""
    name = f"{cluster.name}-worker-1"
    yield name
    cluster.kubectl("uncordon", name)


def deployment(namespace: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "drained", "namespace": namespace},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "scratch", "emptyDir": {}}],
                    "terminationGracePeriodSeconds": 5,
                },
            },
        },
    }


def budget(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "drained", "namespace": namespace},
        "spec": {"selector": {"matchLabels": LABELS}, **spec},
    }


def nodes_of_pods(cluster: Cluster, namespace: str) -> list[str]:
    return [
        pod["spec"].get("nodeName", "")
        for pod in cluster.get("pods", "-n", namespace, "-l", "app=drained")["items"]
        if "deletionTimestamp" not in pod["metadata"]
    ]


def available(cluster: Cluster, namespace: str) -> bool:
    status = cluster.get("deployment", "drained", "-n", namespace)["status"]
    return bool(status.get("availableReplicas") == REPLICAS)


def allowed(cluster: Cluster, namespace: str) -> tuple[int, int]:
    """Disruptions allowed, and how many of the budget's pods are healthy."""
    status = cluster.get("pdb", "drained", "-n", namespace).get("status", {})
    return status.get("disruptionsAllowed", 0), status.get("currentHealthy", 0)


def test_drain_moves_pods_and_a_budget_holds_them_back(
    cluster: Cluster, namespace: str, drained: str
) -> None:
    # All on the node that will be drained: the other one is closed meanwhile.
    other = f"{cluster.name}-worker-2"
    cluster.kubectl("cordon", other)
    try:
        cluster.apply(deployment(namespace), budget(namespace, maxUnavailable=0))
        cluster.eventually(lambda: available(cluster, namespace), "the pods run")
        assert set(nodes_of_pods(cluster, namespace)) == {drained}
    finally:
        cluster.kubectl("uncordon", other)
    cluster.eventually(lambda: allowed(cluster, namespace) == (0, REPLICAS), "the budget counts them")

    held = cluster.kubectl("drain", drained, *DRAIN, "--timeout=7s", check=False)
    assert held.returncode != 0
    assert "Cannot evict pod as it would violate the pod's disruption budget." in held.stderr
    assert nodes_of_pods(cluster, namespace) == [drained] * REPLICAS
    assert cluster.get("node", drained)["spec"]["unschedulable"] is True

    cluster.apply(budget(namespace, maxUnavailable=2))
    cluster.eventually(lambda: allowed(cluster, namespace) == (2, REPLICAS), "the budget allows two")
    done = cluster.kubectl("drain", drained, *DRAIN, "--timeout=90s")
    assert f"node/{drained} drained" in done.stdout
    # The status may be that from before the last pod went.
    cluster.eventually(
        lambda: available(cluster, namespace) and nodes_of_pods(cluster, namespace) == [other] * REPLICAS,
        "the pods run elsewhere",
    )
    cluster.eventually(lambda: allowed(cluster, namespace) == (2, REPLICAS), "the budget is whole again")

    cluster.kubectl("uncordon", drained)
    assert "unschedulable" not in cluster.get("node", drained)["spec"]
    listed = cluster.kubectl("get", "pdb", "-n", namespace).stdout.splitlines()
    assert listed[0].split() == [
        "NAME",
        "MIN",
        "AVAILABLE",
        "MAX",
        "UNAVAILABLE",
        "ALLOWED",
        "DISRUPTIONS",
        "AGE",
    ]
    assert listed[1].split()[:4] == ["drained", "N/A", "2", "2"]
