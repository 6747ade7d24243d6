"""Where pods go when other pods matter: kept apart, kept together, spread, on real nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTNAME = "kubernetes.io/hostname"


def pod(name: str, app: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "nginx"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def term(app: str, key: str = HOSTNAME) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def required(side: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def constraint(app: str, key: str) -> dict[str, Any]:
    return {**term(app, key), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


class Space:
    """A namespace of a cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.nodes = sorted(node["metadata"]["name"] for node in cluster.get("nodes")["items"])

    def apply(self, *objects: dict[str, Any]) -> None:
        self.cluster.apply(*objects, namespace=self.namespace)

    def where(self, app: str) -> dict[str, str]:
        """Pod -> its node, empty while it has none."""
        listed = self.cluster.get("pods", "-n", self.namespace, "-l", f"app={app}")["items"]
        return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in listed}

    def placed(self, app: str, count: int) -> dict[str, str]:
        """Waits until so many pods have a node; answers those."""

        def found() -> dict[str, str]:
            on = {name: node for name, node in self.where(app).items() if node}
            return on if len(on) == count else {}

        return self.cluster.eventually(found, f"{count} pods of {app} to be placed")

    def refusal(self, name: str) -> str:
        """Waits until a pod is said to be unschedulable; answers the text."""

        def said() -> str:
            status = self.cluster.get("pod", name, "-n", self.namespace)["status"]
            conditions = {entry["type"]: entry for entry in status.get("conditions", [])}
            scheduled = conditions.get("PodScheduled", {})
            return scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else ""

        return self.cluster.eventually(said, f"{name} to be refused")

    def delete(self, name: str) -> None:
        self.cluster.kubectl("delete", "pod", name, "-n", self.namespace, "--wait=true", "--timeout=60s")


@pytest.fixture
def space(cluster: Cluster, namespace: str) -> Space:
    return Space(cluster, namespace)


def test_pods_that_must_be_apart_are_and_one_too_many_waits_for_a_place(space: Space) -> None:
    count = len(space.nodes)
    apart = {"affinity": required("podAntiAffinity", term("apart"))}
    space.apply(*(pod(f"apart-{number}", "apart", **apart) for number in range(count)))
    first = space.placed("apart", count)
    assert sorted(first.values()) == space.nodes

    space.apply(pod("late", "apart", **apart))
    text = (
        f"0/{count} nodes are available: {count} node(s) didn't match pod anti-affinity rules. "
        f"no new claims to deallocate, preemption: 0/{count} nodes are available: "
        f"{count} No preemption victims found for incoming pod."
    )
    assert space.refusal("late") == text
    selector = ("--field-selector", "involvedObject.name=late,reason=FailedScheduling")

    def told() -> bool:
        events = space.cluster.get("events", "-n", space.namespace, *selector)
        return text in [event["message"] for event in events["items"]]

    space.cluster.eventually(told, "the event")

    # One that has no terms itself is kept out all the same, by those who are there.
    space.apply(pod("plain", "apart"))
    assert f"{count} node(s) didn't satisfy existing pods anti-affinity rules" in space.refusal("plain")

    space.delete("plain")
    space.delete("apart-0")
    assert space.placed("apart", count)["late"] == first["apart-0"]


def test_a_pod_waits_for_the_one_that_it_must_be_with(space: Space) -> None:
    space.apply(pod("client", "client", affinity=required("podAffinity", term("server"))))
    count = len(space.nodes)
    assert f"{count} node(s) didn't match pod affinity rules" in space.refusal("client")
    space.apply(pod("server", "server", nodeName=space.nodes[-1]))
    assert space.placed("client", 1) == {"client": space.nodes[-1]}


def test_a_label_that_changes_opens_a_place(space: Space) -> None:
    count = len(space.nodes)
    for number, node in enumerate(space.nodes):
        space.apply(pod(f"old-{number}", "crowd", nodeName=node))
    space.apply(pod("away", "away", affinity=required("podAntiAffinity", term("crowd"))))
    assert f"{count} node(s) didn't match pod anti-affinity rules" in space.refusal("away")
    space.cluster.kubectl("label", "pod", "old-0", "app=other", "--overwrite", "-n", space.namespace)
    assert space.placed("away", 1) == {"away": space.nodes[0]}


def test_a_spread_constraint_holds_over_zones_and_a_new_label_helps(space: Space) -> None:
    zone, node = "example.com/hall", space.nodes[0]
    space.apply(pod("lost", "lost", topologySpreadConstraints=[constraint("lost", zone)]))
    count = len(space.nodes)
    assert space.refusal("lost").startswith(
        f"0/{count} nodes are available: {count} node(s) didn't match pod topology spread constraints "
        "(missing required label). "
    )
    space.cluster.kubectl("label", "node", node, f"{zone}=east")
    try:
        assert space.placed("lost", 1) == {"lost": node}
    finally:
        space.cluster.kubectl("label", "node", node, f"{zone}-")

    total = 2 * count
    even = [
        pod(f"even-{n}", "even", topologySpreadConstraints=[constraint("even", HOSTNAME)])
        for n in range(total)
    ]
    space.apply(*even)
    assert Counter(space.placed("even", total).values()) == dict.fromkeys(space.nodes, 2)


def test_a_plain_deployment_is_spread_over_the_nodes(space: Space) -> None:
    count = len(space.nodes)
    space.cluster.kubectl(
        "create", "deployment", "web", "--image=nginx", f"--replicas={count}", "-n", space.namespace
    )
    assert sorted(space.placed("web", count).values()) == space.nodes
