"""Deployments on hollow nodes: they come up, roll, scale, and heal when a node is lost."""

from __future__ import annotations

from typing import Any

import pytest

from kubelet.runtime.hollow import Stage
from podyard.api.types import Event, Node, Pod, apps_v1
from podyard.base import clock
from podyard.testing.world import run_world

Deployment = apps_v1.Deployment
ReplicaSet = apps_v1.ReplicaSet


def deployment(name: str = "web", *, replicas: int = 3, image: str = "nginx:1", **spec: Any) -> Deployment:
    labels = {"app": name}
    return Deployment(
        metadata={"name": name, "namespace": "default"},
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            **spec,
        },
    )


def complete(obj: Deployment) -> bool:
    status, wanted = obj.status, obj.spec.replicas
    return (
        status.observedGeneration == obj.metadata.generation
        and status.replicas == status.updatedReplicas == status.availableReplicas == wanted
    )


async def pods_of(world, name: str = "web") -> list[Pod]:
    return (await world.client.list(Pod, "default", label_selector=f"app={name}")).items


async def set_image(world, image: str, name: str = "web") -> None:
    body = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    await world.client.patch(
        Deployment, name, "default", body=body, patch_type="application/strategic-merge-patch+json"
    )


def test_a_deployment_comes_up_spread_over_the_nodes():
    async def scenario(world):
        await world.client.create(deployment())
        made = await world.until_object(Deployment, "web", complete)
        sets = (await world.client.list(ReplicaSet, "default")).items
        return made, sets, await pods_of(world), (await world.client.list(Event, "default")).items

    (made, sets, pods, events), _ = run_world(1, scenario)
    assert made.metadata.annotations["deployment.kubernetes.io/revision"] == "1"
    conditions = {c.type: (c.status, c.reason) for c in made.status.conditions}
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    (only,) = sets
    digest = only.metadata.labels["pod-template-hash"]
    assert only.metadata.name == f"web-{digest}"
    assert {pod.metadata.labels["pod-template-hash"] for pod in pods} == {digest}
    assert {pod.metadata.ownerReferences[0].uid for pod in pods} == {only.metadata.uid}
    assert {pod.spec.nodeName for pod in pods} == {"node-1", "node-2"}
    texts = [event.message for event in events if event.reason == "ScalingReplicaSet"]
    assert texts == [f"Scaled up replica set {only.metadata.name} from 0 to 3"]


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_rollout_keeps_its_promises_and_can_be_undone(seed):
    async def scenario(world):
        await world.client.create(deployment(replicas=4))
        await world.until_object(Deployment, "web", complete)
        first = (await world.client.list(ReplicaSet, "default")).items[0].metadata.name
        await set_image(world, "nginx:2")
        seen = []

        async def rolled() -> bool:
            obj = await world.client.get(Deployment, "web", "default")
            seen.append((obj.status.availableReplicas, obj.status.replicas))
            return complete(obj)

        await world.until_async(rolled, "rollout")
        await set_image(world, "nginx:1")
        back = await world.until_object(Deployment, "web", complete)
        sets = {
            entry.metadata.name: entry for entry in (await world.client.list(ReplicaSet, "default")).items
        }
        return first, seen, back, sets

    (first, seen, back, sets), _ = run_world(seed, scenario, nodes=3)
    # maxSurge and maxUnavailable are 25 % of 4.
    assert min(available for available, _ in seen) >= 3
    assert max(total for _, total in seen) <= 5
    assert back.metadata.annotations["deployment.kubernetes.io/revision"] == "3"
    assert len(sets) == 2
    assert sets[first].spec.replicas == 4
    assert sets[first].metadata.annotations["deployment.kubernetes.io/revision"] == "3"
    assert sets[first].metadata.annotations["deployment.kubernetes.io/revision-history"] == "1"


def test_scaling_and_deleting_take_the_pods_along():
    async def scenario(world):
        await world.client.create(deployment(replicas=2))
        await world.until_object(Deployment, "web", complete)
        body = {"spec": {"replicas": 5}}
        await world.client.patch(Deployment, "web", "default", body=body)
        await world.until_object(Deployment, "web", complete)
        grown = len(await pods_of(world))
        await world.client.patch(Deployment, "web", "default", body={"spec": {"replicas": 1}})
        await world.until_object(Deployment, "web", complete)
        await world.client.delete(Deployment, "web", "default", propagation="Background")
        await world.until_gone(ReplicaSet, "web", timeout_s=1)

        async def nothing_left() -> bool:
            return not await pods_of(world) and not (await world.client.list(ReplicaSet, "default")).items

        await world.until_async(nothing_left, "garbage collection")
        return grown

    grown, _ = run_world(5, scenario)
    assert grown == 5


@pytest.mark.parametrize("seed", range(6, 16))
def test_recreate_never_runs_two_versions_at_once(seed):
    async def scenario(world):
        await world.client.create(deployment(strategy={"type": "Recreate"}))
        await world.until_object(Deployment, "web", complete)
        await set_image(world, "nginx:2")
        mixed = []

        async def rolled() -> bool:
            pods = await pods_of(world)
            images = {pod.spec.containers[0].image for pod in pods}
            # One that has ended runs nothing any more, though its object is there a little longer.
            running = {
                pod.spec.containers[0].image
                for pod in pods
                if pod.status.phase not in ("Succeeded", "Failed")
            }
            mixed.append(len(running) > 1)
            return complete(await world.client.get(Deployment, "web", "default")) and images == {"nginx:2"}

        await world.until_async(rolled, "recreation")
        return mixed

    mixed, _ = run_world(seed, scenario)
    assert not any(mixed)


def test_a_rollout_that_hangs_is_said_so_after_its_deadline_and_loses_nothing():
    async def scenario(world):
        await world.client.create(deployment(progressDeadlineSeconds=60))
        await world.until_object(Deployment, "web", complete)
        began_s = clock.now_s()
        await set_image(world, "broken")

        def overdue(obj):
            return any(c.reason == "ProgressDeadlineExceeded" for c in obj.status.conditions)

        obj = await world.until_object(Deployment, "web", overdue, timeout_s=200)
        return obj, clock.now_s() - began_s

    stages = {"broken": Stage(pull_error="not found")}
    (obj, took_s), _ = run_world(7, scenario, stages=stages)
    # Conditions keep whole seconds.
    assert 59 <= took_s <= 70
    assert obj.status.availableReplicas == 3


async def lose_a_node(world):
    """A Deployment; one of its nodes falls silent; what happened, when."""
    await world.client.create(deployment())
    await world.until_object(Deployment, "web", complete)
    victims = {
        pod.metadata.name: pod.metadata.uid for pod in await pods_of(world) if pod.spec.nodeName == "node-2"
    }
    lost_s = clock.now_s()
    await world.kill("node-2")
    world.runtimes["node-2"].lose_power()

    def unknown(node):
        return any(c.type == "Ready" and c.status == "Unknown" for c in node.status.conditions)

    await world.until_object(Node, "node-2", unknown, namespace="", timeout_s=120)
    unknown_s = clock.now_s() - lost_s
    node = await world.until_object(
        Node,
        "node-2",
        lambda node: any(taint.effect == "NoExecute" for taint in node.spec.taints),
        namespace="",
    )
    tainted_s = next(t.timeAdded.seconds for t in node.spec.taints if t.effect == "NoExecute")
    evicted_at: list[float] = []

    async def replaced() -> bool:
        pods = await pods_of(world)
        doomed = [pod for pod in pods if pod.metadata.HasField("deletionTimestamp")]
        if doomed and not evicted_at:
            evicted_at.append(clock.now_s())
        ready = [
            pod
            for pod in pods
            if pod.spec.nodeName != "node-2"
            and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
        ]
        return len(ready) == 3

    await world.until_async(replaced, "replacements", timeout_s=500)
    listed = {pod.metadata.name for pod in await pods_of(world)}
    return victims, unknown_s, tainted_s, evicted_at[0], listed


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_dead_nodes_pods_are_replaced_300_s_after_its_taint(seed):
    (victims, unknown_s, tainted_s, evicted_s, listed), _ = run_world(seed, lose_a_node, nodes=3)
    assert victims
    # The grace counts from the last renewal seen, which was up to ten seconds before.
    assert 39 <= unknown_s <= 51
    assert 300 <= evicted_s - tainted_s <= 301.5
    # A lost node's pods stay listed until it is back or someone insists.
    assert set(victims) <= listed


def test_a_node_that_comes_back_loses_its_evicted_pods_and_nothing_moves_back():
    async def scenario(world):
        victims, *_ = await lose_a_node(world)
        world.restart("node-2")

        def well(node):
            return not node.spec.taints and any(
                c.type == "Ready" and c.status == "True" for c in node.status.conditions
            )

        began_s = clock.now_s()
        await world.until_object(Node, "node-2", well, namespace="", timeout_s=60)
        ready_s = clock.now_s() - began_s

        async def gone() -> bool:
            return not {pod.metadata.name for pod in await pods_of(world)} & set(victims)

        await world.until_async(gone, "old pods")
        before = {pod.metadata.name: pod.spec.nodeName for pod in await pods_of(world)}
        await clock.sleep(120)
        after = {pod.metadata.name: pod.spec.nodeName for pod in await pods_of(world)}
        return ready_s, before, after

    (ready_s, before, after), _ = run_world(8, scenario, nodes=3)
    assert ready_s <= 15
    assert before == after
    assert "node-2" not in before.values()


def test_a_node_that_is_back_before_the_deadline_keeps_its_pods():
    async def scenario(world):
        await world.client.create(deployment())
        await world.until_object(Deployment, "web", complete)
        before = {pod.metadata.uid for pod in await pods_of(world)}
        await world.kill("node-2")
        await clock.sleep(200)
        unready = [
            pod.metadata.name
            for pod in await pods_of(world)
            if any(c.type == "Ready" and c.status == "False" for c in pod.status.conditions)
        ]
        world.restart("node-2")
        await clock.sleep(300)
        return before, unready, await pods_of(world)

    (before, unready, pods), _ = run_world(9, scenario, nodes=3)
    assert unready
    assert {pod.metadata.uid for pod in pods} == before
    ready = [c.status for pod in pods for c in pod.status.conditions if c.type == "Ready"]
    assert ready == ["True"] * 3


def test_when_every_node_is_lost_nobody_is_evicted():
    async def scenario(world):
        await world.client.create(deployment())
        await world.until_object(Deployment, "web", complete)
        for name in ("node-1", "node-2"):
            await world.kill(name)
        await clock.sleep(900)
        nodes = (await world.client.list(Node)).items
        return nodes, await pods_of(world)

    (nodes, pods), _ = run_world(10, scenario)
    assert not any(taint.effect == "NoExecute" for node in nodes for taint in node.spec.taints)
    assert not any(pod.metadata.HasField("deletionTimestamp") for pod in pods)
