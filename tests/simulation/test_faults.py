"""A cluster under faults: cut and poor links, killed and restarted parts, dying containers.

The invariants of `podyard.testing.invariants` are checked at each change; at the end, once faults
have stopped, everything wanted runs, nothing else does, and nobody writes any more.
"""

from __future__ import annotations

import random

import pytest

from kubelet.runtime.base import RUNNING
from kubelet.runtime.hollow import Stage
from podyard.api import errors
from podyard.api.types import Pod
from podyard.base import clock
from podyard.testing.world import CONTROLLERS, SCHEDULER, run_world, simple_pod

STAGES = {
    "web": Stage(),
    "slow": Stage(stop_s=20.0),
    "crash": Stage(runs_s=15.0, exit_code=1),
    "job": Stage(runs_s=5.0),
}
SECONDS = 60
LIVE_AT_MOST = 10


class Script:
    """What a seed does to a world: pods that come and go, and faults."""

    def __init__(self, world, seed):
        self.world = world
        self.random = random.Random(seed)
        self.wanted: dict[str, str] = {}  # name -> image
        self.mend_at: dict[str, int] = {}
        self.number = 0

    async def run(self):
        for second in range(SECONDS):
            for name in [name for name, at in self.mend_at.items() if at <= second]:
                self.world.links[name].mend()
                self.world.restart(name)
                del self.mend_at[name]
            await self.random.choice((self.create, self.create, self.delete, self.fault, self.fault))(second)
            await clock.sleep(1.0)
        for name in self.world.parts:
            self.world.links[name].mend()
            self.world.restart(name)

    async def create(self, second):
        if len(self.wanted) >= LIVE_AT_MOST:
            return
        name = f"p{self.number}"
        self.number += 1
        image = self.random.choice(sorted(STAGES))
        pod = simple_pod(name, image=image, restartPolicy="Never" if image == "job" else "Always")
        cpu = self.random.choice(("250m", "500m", "1"))
        pod.spec.containers[0].resources.requests["cpu"].string = cpu
        await self.world.client.create(pod)
        self.wanted[name] = image

    async def delete(self, second):
        if not self.wanted:
            return
        name = self.random.choice(sorted(self.wanted))
        del self.wanted[name]
        await self.world.client.delete(Pod, name, "default", grace_s=self.random.choice((None, 0, 1, 10)))
        if self.random.random() < 0.3:
            # The same name again, perhaps while the old one still ends.
            try:
                await self.world.client.create(simple_pod(name, image="web"))
                self.wanted[name] = "web"
            except errors.AlreadyExists:
                pass

    async def fault(self, second):
        name = self.random.choice(self.world.parts)
        kind = self.random.choice(("cut", "poor", "slow", "kill", "die"))
        if kind == "die":
            runtime = self.world.runtimes[self.random.choice(sorted(self.world.runtimes))]
            for pod in await runtime.pods():
                for container in pod.containers:
                    if container.state == RUNNING and self.random.random() < 0.5:
                        runtime.fail_container(container.id)
            return
        link = self.world.links[name]
        if kind == "cut":
            link.cut()
        elif kind == "poor":
            link.disturb(lost=0.2)
        elif kind == "slow":
            link.disturb(delay_s=2.0)
        else:
            await self.world.kill(name)
        self.mend_at[name] = second + self.random.randint(1, 15)


def running(pod, image):
    if image == "job":
        # A fault may have ended it: it may not run again.
        return pod.status.phase in ("Succeeded", "Failed")
    return pod.status.phase == "Running" and (image == "crash" or pod.status.containerStatuses[0].ready)


async def settled(world, wanted):
    pods = (await world.client.list(Pod, "default")).items
    if {pod.metadata.name for pod in pods} != set(wanted):
        return False
    return all(running(pod, wanted[pod.metadata.name]) for pod in pods)


async def left_on(world, name):
    """Uids of the pods of which a node's runtime still has something."""
    return {pod.uid for pod in await world.runtimes[name].pods()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_all_is_as_wanted_after_any_faults_and_then_quiet(seed):
    async def scenario(world):
        script = Script(world, seed)
        await script.run()
        wanted = script.wanted
        await world.until_async(lambda: settled(world, wanted), "everything wanted", timeout_s=400)
        pods = (await world.client.list(Pod, "default")).items
        on = {
            name: {pod.metadata.uid for pod in pods if pod.spec.nodeName == name} for name in world.runtimes
        }

        async def nothing_else():
            return all([await left_on(world, name) == on[name] for name in on])

        await world.until_async(nothing_else, "no leftovers", timeout_s=60)
        # Containers that crash write for ever: the rest must be still.
        for name in [name for name, image in wanted.items() if image == "crash"]:
            await world.client.delete(Pod, name, "default")
            await world.until_gone(Pod, name)
        await clock.sleep(30)
        before = len(world.history.lines)
        await clock.sleep(600)
        return world.history.lines[before:]

    lines, _ = run_world(seed, scenario, nodes=3, stages=STAGES)
    assert [line for line in lines if " MODIFIED Node " not in line] == []
    assert len(lines) <= 3 * 3


def test_without_its_scheduler_a_cluster_goes_on_but_binds_nothing():
    async def scenario(world):
        await world.client.create(simple_pod("before"))
        await world.until_object(Pod, "before", lambda pod: pod.status.phase == "Running")
        await world.kill(SCHEDULER)
        await world.client.create(simple_pod("meanwhile"))
        await clock.sleep(60)
        waiting = await world.client.get(Pod, "meanwhile", "default")
        await world.client.delete(Pod, "before", "default")
        await world.until_gone(Pod, "before")
        world.restart(SCHEDULER)
        bound = await world.until_object(Pod, "meanwhile", lambda pod: pod.status.phase == "Running")
        return waiting, bound

    (waiting, bound), _ = run_world(31, scenario)
    assert (waiting.spec.nodeName, waiting.status.phase) == ("", "Pending")
    assert bound.spec.nodeName


def test_without_its_controllers_a_cluster_goes_on():
    async def scenario(world):
        await world.kill(CONTROLLERS)
        await world.client.create(simple_pod("web"))
        return await world.until_object(Pod, "web", lambda pod: pod.status.phase == "Running")

    pod, _ = run_world(32, scenario)
    assert pod.status.podIP


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_full_cluster_promises_nothing_twice_however_poor_the_schedulers_link(seed):
    """Eight places, twice as many pods: each lost answer to a binding could give a place away again."""

    async def scenario(world):
        choose = random.Random(seed)
        live: list[str] = []
        for number in range(0, 120, 2):
            for name in (f"p{number}", f"p{number + 1}"):
                pod = simple_pod(name)
                pod.spec.containers[0].resources.requests["cpu"].string = "1"
                await world.client.create(pod)
                live.append(name)
            while len(live) > 12:
                await world.client.delete(Pod, live.pop(choose.randrange(len(live))), "default", grace_s=0)
            link, draw = world.links[SCHEDULER], choose.random()
            if draw < 0.3:
                link.disturb(lost=0.5, delay_s=1.0)
            elif draw < 0.4:
                await world.kill(SCHEDULER)
                world.restart(SCHEDULER)
            elif draw < 0.6:
                link.mend()
            await clock.sleep(1.0)
        world.links[SCHEDULER].mend()
        await clock.sleep(120)
        pods = (await world.client.list(Pod, "default")).items
        for pod in pods:
            scheduled = {c.type: c.status for c in pod.status.conditions}["PodScheduled"]
            assert scheduled == ("True" if pod.spec.nodeName else "False")
        return sum(1 for pod in pods if pod.status.phase == "Running")

    running_now, _ = run_world(seed, scenario)
    assert running_now == 8
