"""An hour of a cluster's life: workloads roll and scale while nodes and parts are lost and come back.

The invariants of `podyard.testing.invariants` are checked at each change; at the end everything
wanted is there, and then nobody writes any more.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kubelet.runtime.hollow import Stage
from podyard.api import errors
from podyard.api.types import Node, Pod
from podyard.base import clock
from podyard.testing.world import CONTROLLERS, SCHEDULER, World, run_world
from tests.simulation.test_workloads import Deployment, complete, deployment, pods_of, set_image

HOUR_S, STEP_S = 3600, 30
NODES = 5
NAMES = ("web", "apart", "even")
HOSTNAME = "kubernetes.io/hostname"
STAGES = {"nginx:1": Stage(), "nginx:2": Stage(stop_s=10.0)}


def workloads() -> list[Deployment]:
    """A plain one, one with at most one pod on a node, one that is spread evenly."""
    plain, apart, even = deployment("web", replicas=4), deployment("apart"), deployment("even", replicas=5)
    rule: dict[str, Any] = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "apart"}}}
    terms = apart.spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution
    terms.add(**rule)
    even.spec.template.spec.topologySpreadConstraints.add(
        topologyKey=HOSTNAME,
        maxSkew=1,
        whenUnsatisfiable="DoNotSchedule",
        labelSelector={"matchLabels": {"app": "even"}},
        nodeTaintsPolicy="Honor",
    )
    return [plain, apart, even]


class Life:
    """What a seed does to a world in an hour."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.mend_at_s: dict[str, float] = {}
        self.done: Counter[str] = Counter()
        self.began_s = clock.now_s()
        self.apart: dict[str, str] = {}  # uid of a pod that must be alone on its node -> that node
        world.on_change(self.check)

    def check(self, _: float, type_: str, obj: object) -> None:
        """No two pods that must be apart are ever on one node."""
        if not isinstance(obj, Pod) or obj.metadata.labels.get("app") != "apart":
            return
        self.apart.pop(obj.metadata.uid, None)
        if obj.spec.nodeName and type_ != "DELETED" and obj.status.phase not in ("Succeeded", "Failed"):
            assert obj.spec.nodeName not in self.apart.values(), f"{obj.metadata.name} is not alone"
            self.apart[obj.metadata.uid] = obj.spec.nodeName

    async def run(self) -> None:
        for made in workloads():
            await self.world.client.create(made)
        acts = (
            self.scale,
            self.roll,
            self.lose_node,
            self.restart,
            self.cut,
            self.disturb,
            self.kill_pod,
            self.cordon,
        )
        while clock.now_s() < self.began_s + HOUR_S:
            self.mend(clock.now_s())
            act = self.random.choice(acts)
            self.done[act.__name__] += 1
            await act()
            await clock.sleep(self.random.uniform(1, 2 * STEP_S))
        self.mend(None)
        for name in self.world.runtimes:
            await self._cordon(name, False)

    def mend(self, now_s: float | None) -> None:
        """Ends the faults that are over; all of them when no time is given."""
        for name in [name for name, at_s in self.mend_at_s.items() if now_s is None or at_s <= now_s]:
            del self.mend_at_s[name]
            self.world.links[name].mend()
            self.world.restart(name)

    def _until(self, name: str, longest_s: float) -> None:
        self.mend_at_s[name] = clock.now_s() + self.random.uniform(5, longest_s)

    async def scale(self) -> None:
        body = {"spec": {"replicas": self.random.randint(1, NODES)}}
        await self.world.client.patch(Deployment, self.random.choice(NAMES), "default", body=body)

    async def roll(self) -> None:
        image = self.random.choice(sorted(STAGES))
        await set_image(self.world, image, self.random.choice(NAMES))

    async def lose_node(self) -> None:
        """A node's plug is pulled; sometimes for longer than its pods are tolerated."""
        name = self.random.choice(sorted(self.world.runtimes))
        await self.world.kill(name)
        self.world.runtimes[name].lose_power()
        self._until(name, 600)

    async def restart(self) -> None:
        name = self.random.choice((SCHEDULER, CONTROLLERS))
        await self.world.kill(name)
        self._until(name, 30)

    async def cut(self) -> None:
        name = self.random.choice(self.world.parts)
        self.world.links[name].cut()
        self._until(name, 120)

    async def disturb(self) -> None:
        name = self.random.choice(self.world.parts)
        self.world.links[name].disturb(lost=0.1, delay_s=1.0)
        self._until(name, 120)

    async def kill_pod(self) -> None:
        pods = await pods_of(self.world, self.random.choice(NAMES))
        if pods:
            victim = self.random.choice(pods)
            try:
                await self.world.client.delete(Pod, victim.metadata.name, "default")
            except errors.NotFound:
                pass

    async def cordon(self) -> None:
        await self._cordon(self.random.choice(sorted(self.world.runtimes)), self.random.random() < 0.5)

    async def _cordon(self, name: str, closed: bool) -> None:
        await self.world.client.patch(Node, name, body={"spec": {"unschedulable": closed or None}})


async def settled(world: World) -> bool:
    for name in NAMES:
        made = await world.client.get(Deployment, name, "default")
        if not complete(made) or len(await pods_of(world, name)) != made.spec.replicas:
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 23])
def test_after_an_hour_of_losses_all_is_as_wanted_and_then_quiet(seed):
    async def scenario(world):
        life = Life(world, seed)
        await life.run()
        lived_s = clock.now_s() - life.began_s
        await world.until_async(lambda: settled(world), "everything wanted", timeout_s=600)
        wanted = {pod.metadata.uid: pod.spec.nodeName for name in NAMES for pod in await pods_of(world, name)}

        async def nothing_else() -> bool:
            found = [
                (pod.uid, name) for name, runtime in world.runtimes.items() for pod in await runtime.pods()
            ]
            return sorted(found) == sorted(wanted.items())

        await world.until_async(nothing_else, "no leftovers", timeout_s=120)
        await clock.sleep(60)
        before = len(world.history.lines)
        await clock.sleep(600)
        return life, lived_s, world.history.lines[before:]

    (life, lived_s, lines), _ = run_world(seed, scenario, nodes=NODES, stages=STAGES)
    assert lived_s >= HOUR_S
    assert len(life.done) == 8, "every sort of change has happened"
    # Nodes tell of themselves every five minutes; nobody else says anything.
    assert [line for line in lines if " MODIFIED Node " not in line] == []
    assert len(lines) <= 3 * NODES
