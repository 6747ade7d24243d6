"""Rollouts that meet trouble: stuck and scaled, a name that is taken, a set that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kubelet.runtime.hollow import Stage
from podyard.api import meta
from podyard.api.types import Event, Node, Pod, apps_v1
from podyard.base import clock
from podyard.testing.world import World, run_world
from tests.simulation.test_workloads import complete, deployment, pods_of, set_image

Deployment = apps_v1.Deployment
ReplicaSet = apps_v1.ReplicaSet


def rolling(surge: int | str, unavailable: int | str) -> dict[str, Any]:
    def either(value: int | str) -> dict[str, Any]:
        return {"type": 0, "intVal": value} if isinstance(value, int) else {"type": 1, "strVal": value}

    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": either(surge), "maxUnavailable": either(unavailable)},
    }


def counted(world: World) -> tuple[dict[str, bool], list[int]]:
    """(uid -> whether the pod serves, the fewest that ever did since `fewest` was last cleared)."""
    serving: dict[str, bool] = {}
    fewest: list[int] = []

    def note(_: float, type_: str, obj: object) -> None:
        if not isinstance(obj, Pod):
            return
        ready = meta.is_condition_true(obj.status.conditions, "Ready")
        ending = type_ == "DELETED" or obj.metadata.HasField("deletionTimestamp")
        serving[obj.metadata.uid] = ready and not ending
        fewest.append(sum(serving.values()))

    world.on_change(note)
    return serving, fewest


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "scaled", "kept"),
    [(10, 2, 1, 2, 1), (10, 1, 0, 3, 3), (8, "25%", "25%", 4, 3), (6, 0, 1, 1, 0), (4, 3, 1, 8, 7)],
)
def test_scaling_a_stuck_rollout_keeps_what_must_be_available(
    seed, replicas, surge, unavailable, scaled, kept
):
    async def scenario(world):
        await world.client.create(deployment(replicas=replicas, strategy=rolling(surge, unavailable)))
        await world.until_object(Deployment, "web", complete)
        serving, fewest = counted(world)
        for pod in await pods_of(world):
            serving[pod.metadata.uid] = True
        await set_image(world, "broken")
        await clock.sleep(3)
        await world.client.patch(Deployment, "web", "default", body={"spec": {"replicas": scaled}})
        await clock.sleep(120)
        obj = await world.client.get(Deployment, "web", "default")
        return min(fewest), obj.status.availableReplicas

    stages = {"broken": Stage(pull_error="not found")}
    (fewest, available), _ = run_world(seed, scenario, nodes=3, stages=stages)
    # Growing makes no old pod: the minimum then is what was there.
    was_left = replicas - (unavailable if isinstance(unavailable, int) else replicas // 4)
    least = min(kept, was_left)
    assert fewest >= least
    assert available >= least


def test_a_taken_name_is_left_to_its_owner_and_another_one_found():
    async def scenario(world):
        await world.client.create(deployment())
        await world.until_object(Deployment, "web", complete)
        (first,) = (await world.client.list(ReplicaSet, "default")).items
        await world.client.delete(Deployment, "web", "default", propagation="Foreground")
        await world.until_gone(Deployment, "web")
        foreign = ReplicaSet(
            metadata={"name": first.metadata.name, "namespace": "default"},
            spec={
                "replicas": 0,
                "selector": {"matchLabels": {"app": "other"}},
                "template": {
                    "metadata": {"labels": {"app": "other"}},
                    "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
                },
            },
        )
        foreign = await world.client.create(foreign)
        await world.client.create(deployment())
        made = await world.until_object(Deployment, "web", complete)
        await set_image(world, "nginx:2")
        rolled = await world.until_object(Deployment, "web", complete)
        sets = (await world.client.list(ReplicaSet, "default")).items
        return foreign, made, rolled, {entry.metadata.name: entry for entry in sets}

    (foreign, made, rolled, sets), _ = run_world(1, scenario)
    assert made.status.collisionCount == rolled.status.collisionCount == 1
    assert len(sets) == 3
    kept = sets.pop(foreign.metadata.name)
    assert (kept.metadata.uid, len(kept.metadata.ownerReferences)) == (foreign.metadata.uid, 0)
    assert kept.spec.replicas == 0
    progress = meta.condition(rolled.status.conditions, "Progressing")
    assert progress.reason == "NewReplicaSetAvailable"
    assert any(f'"{name}"' in progress.message for name in sets)


@pytest.mark.parametrize("length", [245, 253])
def test_a_set_that_is_refused_is_told_of_in_status_and_events(length):
    name = "a" * length

    async def scenario(world):
        obj = deployment("web")
        obj.metadata.name = name
        await world.client.create(obj)

        def failed(obj):
            return any(c.reason == "ReplicaSetCreateError" for c in obj.status.conditions)

        obj = await world.until_object(Deployment, name, failed)
        await clock.sleep(300)
        later = await world.client.get(Deployment, name, "default")
        listed = (await world.client.list(Event, "default")).items
        return obj, later, [event for event in listed if event.reason == "ReplicaSetCreateError"]

    (obj, later, events), _ = run_world(1, scenario)
    condition = meta.condition(obj.status.conditions, "Progressing")
    assert condition.status == "False"
    assert condition.message.startswith(f'Failed to create new replica set "{name}-')
    assert "must be no more than 253" in condition.message
    assert {event.type for event in events} == {"Warning"}
    assert {event.message for event in events} == {condition.message[:1024]}
    # It is tried again, and written once.
    assert sum(event.count for event in events) > 1
    assert later.metadata.resourceVersion == obj.metadata.resourceVersion


def test_nodes_are_greeted_and_dismissed_and_evictions_called_off():
    async def scenario(world):
        obj = deployment(replicas=2)
        obj.spec.template.spec.tolerations.add(
            key="maintenance", operator="Exists", effect="NoExecute", tolerationSeconds=60
        )
        await world.client.create(obj)
        await world.until_object(Deployment, "web", complete)
        before = {pod.metadata.name for pod in await pods_of(world)}
        taint = [{"key": "maintenance", "effect": "NoExecute"}]
        for node in ("node-1", "node-2"):
            await world.client.patch(Node, node, body={"spec": {"taints": taint}})
        await clock.sleep(20)
        for node in ("node-1", "node-2"):
            await world.client.patch(Node, node, body={"spec": {"taints": []}})
        await clock.sleep(120)
        after = {pod.metadata.name for pod in await pods_of(world)}
        await world.kill("node-2")
        await world.client.delete(Node, "node-2")
        await clock.sleep(10)
        return before, after, (await world.client.list(Event)).items

    (before, after, events), _ = run_world(1, scenario)
    assert before == after
    told = sorted(event.message for event in events if event.reason == "TaintManagerEviction")
    assert told == [f"Cancelling deletion of Pod default/{name}" for name in sorted(before)]
    nodes = [event.message for event in events if event.reason in ("RegisteredNode", "RemovingNode")]
    assert sorted(nodes) == [
        "Node node-1 event: Registered Node node-1 in Controller",
        "Node node-2 event: Registered Node node-2 in Controller",
        "Node node-2 event: Removing Node node-2 from Controller",
    ]
