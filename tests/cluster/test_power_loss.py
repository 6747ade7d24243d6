"""Everything is killed at once, as when the host goes down: `podyard up` brings the same cluster back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster import scenario
from tests.cluster.live import Live, docker
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Kinds of which every object must be there again, the very same one.
KINDS = "namespaces,nodes,configmaps,secrets,serviceaccounts,services,deployments,replicasets,pods"


def state(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """uid -> what was written of it."""
    found = {}
    for item in cluster.get(KINDS, "-n", namespace)["items"]:
        found[item["metadata"]["uid"]] = (item["kind"], item["metadata"]["name"], item.get("data"))
    return found


def restarts(cluster: Cluster, namespace: str, app: str) -> list[int]:
    pods = scenario.pods(cluster, app, namespace)
    return sorted(pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods)


def test_all_containers_killed_at_once(cluster: Cluster, live: Live, namespace: str) -> None:
    inside = ("-n", namespace)
    objects = [scenario.deployment("web"), scenario.service("web"), scenario.client_pod("client", "web")]
    cluster.apply(*objects, namespace=namespace)
    cluster.kubectl(*inside, "create", "configmap", "kept", "--from-literal=said=before")
    cluster.kubectl(*inside, "rollout", "status", "deployment/web", "--timeout=100s")
    # While a container is not there yet, it has no log.
    said = (*inside, "logs", "client")
    cluster.eventually(lambda: " ok" in cluster.kubectl(*said, check=False).stdout, "an answer")
    before = state(cluster, namespace)
    assert len(before) > 10
    docker("kill", *live.containers())
    cluster.podyard("up")
    # The API has what it had, no object more or less.
    assert state(cluster, namespace) == before
    # The pods are the same ones too, and their containers were started again.
    cluster.kubectl(*inside, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=100s")
    cluster.eventually(lambda: restarts(cluster, namespace, "web") == [1, 1, 1], "three restarts")
    assert state(cluster, namespace) == before
    cluster.eventually(lambda: " ok" in cluster.kubectl(*said, check=False).stdout, "an answer again")
    # And it works on: what is written now is written.
    cluster.kubectl(*inside, "scale", "deployment/web", "--replicas=4")
    cluster.kubectl(*inside, "rollout", "status", "deployment/web", "--timeout=100s")
