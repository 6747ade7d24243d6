"""Pods that others keep waiting: tried again when a change of those helps, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.api.types import Event, Node, Pod
from podyard.base import clock
from podyard.testing.world import World, run_world, simple_pod
from tests.simulation.test_workloads import Deployment, complete, deployment, pods_of

HOSTNAME = "kubernetes.io/hostname"
# Whose terms keep two pods apart.
COMES, THERE = "the one that comes", "those that are there"


def pod(name: str, app: str, **spec: Any) -> Pod:
    made = simple_pod(name, **spec)
    made.metadata.labels["app"] = app
    return made


def rule(side: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def refused(world: World, name: str) -> str:
    """Waits until a pod is said to be unschedulable; answers why."""

    def said(obj: Pod) -> bool:
        return any(c.reason == "Unschedulable" for c in obj.status.conditions)

    obj = await world.until_object(Pod, name, said)
    return next(c.message for c in obj.status.conditions if c.reason == "Unschedulable")


async def bound_within(world: World, name: str, limit_s: float) -> str:
    """The node of a pod that gets one long before it would be tried again anyway, after 300 s."""
    obj = await world.until_object(Pod, name, lambda obj: bool(obj.spec.nodeName), timeout_s=limit_s)
    return obj.spec.nodeName


async def attempts(world: World, name: str) -> int:
    """How often a pod has been refused."""
    listed = await world.client.list(Event, "default", field_selector=f"involvedObject.name={name}")
    return sum(event.count or 1 for event in listed.items if event.reason == "FailedScheduling")


async def crowd(world: World, app: str) -> None:
    for number in (1, 2):
        await world.client.create(pod(f"{app}-{number}", app, nodeName=f"node-{number}"))


async def delete(world: World) -> None:
    await world.client.delete(Pod, "old-2", "default", grace_s=0)


async def change_labels(world: World) -> None:
    await world.client.patch(Pod, "old-2", "default", body={"metadata": {"labels": {"app": "new"}}})


async def finish(world: World) -> None:
    body = {"status": {"phase": "Succeeded"}}
    await world.kill("node-2")
    await world.client.patch(Pod, "old-2", "default", body=body, subresource="status")


# Terms of those that are there stay what they are, whatever becomes of their labels.
@pytest.mark.parametrize(
    ("held_by", "makes_room"),
    [(COMES, delete), (COMES, change_labels), (COMES, finish), (THERE, delete), (THERE, finish)],
)
def test_a_pod_that_is_kept_away_comes_when_there_is_room(held_by, makes_room):
    async def scenario(world):
        mine = rule("podAntiAffinity", "old") if held_by is COMES else None
        theirs = None if mine else rule("podAntiAffinity", "waiting")
        for number in (1, 2):
            spec = {"nodeName": f"node-{number}"} | ({"affinity": theirs} if theirs else {})
            await world.client.create(pod(f"old-{number}", "old", **spec))
        await world.client.create(pod("waiting", "waiting", **({"affinity": mine} if mine else {})))
        text = await refused(world, "waiting")
        await clock.sleep(20)
        await makes_room(world)
        return text, await bound_within(world, "waiting", 20)

    (text, node), _ = run_world(1, scenario)
    side = "match pod" if held_by is COMES else "satisfy existing pods"
    assert text.startswith(f"0/2 nodes are available: 2 node(s) didn't {side} anti-affinity rules. ")
    assert node == "node-2"


def test_a_pod_comes_to_the_one_that_it_waits_for():
    async def scenario(world):
        await world.client.create(pod("client", "client", affinity=rule("podAffinity", "server")))
        text = await refused(world, "client")
        await clock.sleep(20)
        await world.client.create(pod("server", "server", nodeName="node-2"))
        return text, await bound_within(world, "client", 20)

    (text, node), _ = run_world(2, scenario)
    assert text.startswith("0/2 nodes are available: 2 node(s) didn't match pod affinity rules. ")
    assert node == "node-2"


def test_a_node_that_gets_the_label_helps_a_pod_that_is_spread_by_it():
    async def scenario(world):
        spread = {
            "topologyKey": "hall",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        await world.client.create(pod("web", "web", topologySpreadConstraints=[spread]))
        text = await refused(world, "web")
        await clock.sleep(20)
        await world.client.patch(Node, "node-2", body={"metadata": {"labels": {"hall": "east"}}})
        return text, await bound_within(world, "web", 20)

    (text, node), _ = run_world(3, scenario)
    assert "2 node(s) didn't match pod topology spread constraints (missing required label). " in text
    assert node == "node-2"


def test_what_has_nothing_to_do_with_it_wakes_nobody():
    async def scenario(world):
        await crowd(world, "old")
        await world.client.create(pod("waiting", "waiting", affinity=rule("podAntiAffinity", "old")))
        await refused(world, "waiting")
        await clock.sleep(20)
        before = await attempts(world, "waiting")
        for number in range(5):
            await world.client.create(pod(f"other-{number}", "other"))
            await world.until_object(Pod, f"other-{number}", lambda obj: obj.status.phase == "Running")
            await world.client.delete(Pod, f"other-{number}", "default")
            await world.until_gone(Pod, f"other-{number}")
            await clock.sleep(10)
        return before, await attempts(world, "waiting")

    (before, after), _ = run_world(4, scenario)
    assert before == after


def test_replicas_that_ask_for_nothing_are_spread_over_the_nodes_again_and_again():
    async def scenario(world):
        await world.client.create(deployment(replicas=3))
        await world.until_object(Deployment, "web", complete)
        await world.client.patch(Deployment, "web", "default", body={"spec": {"replicas": 9}})
        await world.until_object(Deployment, "web", complete)
        return sorted(pod.spec.nodeName for pod in await pods_of(world))

    where, _ = run_world(5, scenario, nodes=3)
    assert where == ["node-1"] * 3 + ["node-2"] * 3 + ["node-3"] * 3
