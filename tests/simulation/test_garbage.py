"""Owners and dependents through the real API: who goes, who stays, who waits for whom."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.api import errors
from podyard.api.types import ConfigMap, Event, Namespace, rbac_v1
from podyard.base import clock
from podyard.testing.world import CONTROLLERS, World, run_world

FOREGROUND = "foregroundDeletion"


def reference(owner: ConfigMap, *, blocks: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "blockOwnerDeletion": blocks,
    }


async def make(
    world: World, name: str, *owners: ConfigMap, blocks: bool = True, **metadata: Any
) -> ConfigMap:
    references = [reference(owner, blocks=blocks) for owner in owners]
    metadata = {"namespace": "default", **metadata}
    return await world.client.create(
        ConfigMap(metadata={"name": name, "ownerReferences": references, **metadata})
    )


async def own(world: World, name: str, *owners: ConfigMap) -> None:
    """Gives an object owners that were made after it."""
    body = {"metadata": {"ownerReferences": [reference(owner) for owner in owners]}}
    await world.client.patch(ConfigMap, name, "default", body=body)


async def left(world: World) -> dict[str, list[str]]:
    """Names of what is still there, with their owners."""
    listed = (await world.client.list(ConfigMap, "default")).items
    return {
        obj.metadata.name: [owner.name for owner in obj.metadata.ownerReferences]
        for obj in listed
        if obj.metadata.name != "kube-root-ca.crt"
    }


async def settled(world: World, expected: dict[str, list[str]]) -> None:
    async def as_expected() -> bool:
        return await left(world) == expected

    await world.until_async(as_expected, f"{expected} to be left")


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("propagation", ["Foreground", "Background", "Orphan"])
def test_a_dependent_with_another_owner_only_loses_the_one_that_goes(propagation, blocks):
    async def scenario(world):
        one, two = await make(world, "o1"), await make(world, "o2")
        await make(world, "shared", one, two, blocks=blocks)
        await make(world, "only", one, blocks=blocks)
        before = (await world.client.get(ConfigMap, "shared", "default")).metadata.uid
        await world.client.delete(ConfigMap, "o1", "default", propagation=propagation)
        orphan = {"only": []} if propagation == "Orphan" else {}
        await settled(world, {"o2": [], "shared": ["o2"], **orphan})
        assert (await world.client.get(ConfigMap, "shared", "default")).metadata.uid == before
        await world.client.delete(ConfigMap, "o2", "default", propagation="Foreground")
        await settled(world, orphan)

    run_world(1, scenario, nodes=0)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("restarted", [False, True])
def test_both_owners_deleted_in_the_foreground_take_the_dependent_along(seed, restarted):
    async def scenario(world):
        one, two = await make(world, "o1"), await make(world, "o2")
        shared = await make(world, "shared", one, two)
        await make(world, "below", shared)
        if restarted:
            await world.kill(CONTROLLERS)
        for name in ("o1", "o2"):
            await world.client.delete(ConfigMap, name, "default", propagation="Foreground")
        if restarted:
            world.restart(CONTROLLERS)
        await settled(world, {})

    run_world(seed, scenario, nodes=0)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_cycle_is_deleted_in_the_foreground(seed, size):
    async def scenario(world):
        made = [await make(world, "m0")]
        for number in range(1, size):
            made.append(await make(world, f"m{number}", made[-1]))
        await own(world, "m0", made[-1])
        await make(world, "tail", made[size // 2])
        await world.client.delete(ConfigMap, "m0", "default", propagation="Foreground")
        await settled(world, {})

    run_world(seed, scenario, nodes=0)


def test_who_blocks_is_waited_for_and_who_blocks_no_more_is_not():
    async def scenario(world):
        owner = await make(world, "owner")
        await make(world, "held", owner, finalizers=["example.com/hold"])
        await make(world, "swapped", owner, finalizers=["example.com/hold"])
        other = await make(world, "other")
        await world.client.delete(ConfigMap, "owner", "default", propagation="Foreground")

        async def both_end() -> bool:
            listed = (await world.client.list(ConfigMap, "default")).items
            return sum(obj.metadata.HasField("deletionTimestamp") for obj in listed) == 3

        await world.until_async(both_end, "deletions")
        await clock.sleep(30)
        waiting = await world.client.get(ConfigMap, "owner", "default")
        # One lets it go on, the other takes another owner instead: as many as before.
        await world.client.patch(
            ConfigMap,
            "held",
            "default",
            body={"metadata": {"ownerReferences": [reference(owner, blocks=False)]}},
        )
        await own(world, "swapped", other)
        await world.until_gone(ConfigMap, "owner")
        return list(waiting.metadata.finalizers)

    finalizers, _ = run_world(1, scenario, nodes=0)
    assert finalizers == [FOREGROUND]


async def warnings(world: World) -> list[tuple[str, str, str]]:
    return [
        (event.involvedObject.name, event.type, event.message)
        for event in (await world.client.list(Event)).items
        if event.reason == "OwnerRefInvalidNamespace"
    ]


@pytest.mark.parametrize("helped", [False, True])
def test_an_owner_in_another_namespace_is_none_and_is_said_so(helped):
    async def scenario(world):
        await world.client.create(Namespace(metadata={"name": "team"}))
        owner = await make(world, "owner", namespace="team")
        owners = [owner, await make(world, "near")] if helped else [owner]
        await make(world, "child", *owners)
        await settled(world, {"near": [], "child": ["near"]} if helped else {})
        # Nobody at all has this uid: that is no misplaced owner.
        stranger = ConfigMap(metadata={"name": "owner", "uid": "nobody"})
        await make(world, "waif", stranger)
        await settled(world, {"near": [], "child": ["near"]} if helped else {})

        async def said() -> bool:
            return bool(await warnings(world))

        await world.until_async(said, "events")
        return owner.metadata.uid, await warnings(world)

    (uid, events), _ = run_world(1, scenario, nodes=0)
    text = (
        f'[v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace "default"'
    )
    assert events == [("child", "Warning", f"ownerRef {text}")]


@pytest.mark.parametrize("absent", [False, True])
def test_a_cluster_wide_object_is_never_collected_for_an_owner_in_a_namespace(absent):
    async def scenario(world):
        owner = await make(world, "owner")
        role = rbac_v1.ClusterRole(metadata={"name": "wide", "ownerReferences": [reference(owner)]})
        if absent:
            await world.client.delete(ConfigMap, "owner", "default")
        await world.client.create(role)
        await clock.sleep(60)
        if not absent:
            await world.client.delete(ConfigMap, "owner", "default")
            await clock.sleep(60)
        try:
            kept = bool(await world.client.get(rbac_v1.ClusterRole, "wide"))
        except errors.NotFound:
            kept = False
        return kept, [name for name, *_ in await warnings(world)]

    (kept, events), _ = run_world(1, scenario, nodes=0)
    assert kept
    assert events == ([] if absent else ["wide"])
