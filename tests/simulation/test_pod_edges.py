"""The corners of a pod's life: its end comes while it starts, its name is taken again, its server is away."""

from __future__ import annotations

import pytest

from kubelet.runtime.base import RUNNING, RuntimeFailure
from kubelet.runtime.hollow import Delays, Stage
from kubelet.volumes import NoVolumes, VolumeError
from podyard.api.types import ConfigMap, Event, Pod
from podyard.base import clock
from podyard.testing.world import run_world, simple_pod

STUBBORN = {"stubborn": Stage(stop_s=3600.0)}


def is_running(pod) -> bool:
    return pod.status.phase == "Running"


def waits_for(reason: str):
    def check(pod) -> bool:
        statuses = pod.status.containerStatuses
        return bool(statuses) and statuses[0].state.waiting.reason == reason

    return check


async def took_s(world, wait) -> float:
    began_s = clock.now_s()
    await wait
    return clock.now_s() - began_s


async def containers_of(world, pod):
    return (await world.runtimes[pod.spec.nodeName].pod(pod.metadata.uid)).containers


async def until_nothing_runs(world, pod, timeout_s=120.0):
    async def check():
        found = await world.runtimes[pod.spec.nodeName].pod(pod.metadata.uid)
        return not found.sandboxes and not found.containers

    await world.until_async(check, "nothing left", timeout_s)


@pytest.mark.parametrize(
    "delays",
    [Delays(pull_s=900.0), Delays(sandbox_s=60.0), Delays(start_s=60.0)],
    ids=["pull", "sandbox", "start"],
)
def test_what_is_being_started_is_given_up_when_the_pod_is_deleted(delays):
    async def scenario(world):
        await world.client.create(simple_pod("web"))
        await world.until_object(Pod, "web", lambda pod: pod.spec.nodeName)
        await clock.sleep(5)
        pod = await world.client.get(Pod, "web", "default")
        await world.client.delete(Pod, "web", "default")
        took = await took_s(world, world.until_gone(Pod, "web"))
        await until_nothing_runs(world, pod)
        return pod, took

    (pod, took), _ = run_world(41, scenario, delays=delays)
    assert pod.status.phase == "Pending"
    assert took < 2


def test_a_shorter_grace_counts_at_once():
    async def scenario(world):
        await world.client.create(simple_pod("slow", image="stubborn"))
        await world.until_object(Pod, "slow", is_running)
        await world.client.delete(Pod, "slow", "default", grace_s=600)
        await clock.sleep(5)
        await world.client.delete(Pod, "slow", "default", grace_s=3)
        return await took_s(world, world.until_gone(Pod, "slow"))

    took, _ = run_world(42, scenario, stages=STUBBORN)
    assert took == pytest.approx(3, abs=0.5)


def test_a_pod_deleted_by_force_still_ends_on_its_node_while_its_name_is_taken_again():
    async def scenario(world):
        old = simple_pod("web", image="stubborn", terminationGracePeriodSeconds=600)
        await world.client.create(old)
        old = await world.until_object(Pod, "web", is_running)
        await world.client.delete(Pod, "web", "default", grace_s=0)
        new = await world.client.create(simple_pod("web", image="stubborn", nodeName=old.spec.nodeName))
        (ending,) = await containers_of(world, old)
        took = await took_s(world, until_nothing_runs(world, old))
        running = await world.until_object(Pod, "web", is_running)
        await clock.sleep(60)
        return ending, took, new, running, await containers_of(world, new)

    (ending, took, new, running, containers), _ = run_world(43, scenario, stages=STUBBORN)
    assert ending.state == RUNNING
    assert 1 <= took < 2
    assert running.metadata.uid == new.metadata.uid
    assert [(container.state, container.attempt) for container in containers] == [(RUNNING, 0)]


def test_a_pod_with_a_finalizer_ends_and_waits_quietly():
    async def scenario(world):
        pod = simple_pod("held")
        pod.metadata.finalizers.append("example.com/held")
        await world.client.create(pod)
        await world.until_object(Pod, "held", is_running)
        await world.client.delete(Pod, "held", "default", grace_s=1)
        ended = await world.until_object(Pod, "held", lambda pod: pod.status.phase != "Running")
        await clock.sleep(30)
        before = len(world.history.lines)
        await clock.sleep(600)
        lines = [line for line in world.history.lines[before:] if " Pod " in line]
        await world.client.patch(Pod, "held", "default", body={"metadata": {"finalizers": None}})
        await world.until_gone(Pod, "held")
        await until_nothing_runs(world, ended)
        return ended, lines

    (ended, lines), _ = run_world(44, scenario)
    assert ended.status.phase == "Succeeded"
    assert lines == []


def test_an_image_that_may_not_be_pulled_is_looked_for_now_and_then():
    async def scenario(world):
        pod = simple_pod("web", nodeName="node-1")
        pod.spec.containers[0].imagePullPolicy = "Never"
        runtime = world.runtimes["node-1"]
        asked = []
        look = runtime.image

        async def counted(reference):
            asked.append(reference)
            return await look(reference)

        runtime.image = counted
        await world.client.create(pod)
        await world.until_object(Pod, "web", waits_for("ErrImageNeverPull"))
        await clock.sleep(60)
        number = len(asked)
        await runtime.pull("docker.io/library/nginx:latest")
        await world.until_object(Pod, "web", is_running)
        return number

    number, _ = run_world(45, scenario)
    assert 5 <= number <= 8


def test_a_missing_config_map_is_said_and_its_arrival_is_seen():
    async def scenario(world):
        pod = simple_pod("web")
        key = {"localObjectReference": {"name": "conf"}, "key": "a"}
        pod.spec.containers[0].env.add(name="A", valueFrom={"configMapKeyRef": key})
        await world.client.create(pod)
        waiting = await world.until_object(Pod, "web", waits_for("CreateContainerConfigError"))
        await clock.sleep(60)
        await world.client.create(
            ConfigMap(metadata={"name": "conf", "namespace": "default"}, data={"a": "1"})
        )
        took = await took_s(world, world.until_object(Pod, "web", is_running))
        return waiting, took, (await world.client.list(Event, "default")).items

    (waiting, took, events), _ = run_world(46, scenario)
    assert waiting.status.containerStatuses[0].state.waiting.message == 'configmap "conf" not found'
    assert took < 13
    (failed,) = [event for event in events if event.reason == "Failed"]
    assert failed.message == 'Error: configmap "conf" not found'
    assert failed.involvedObject.fieldPath == "spec.containers{web}"
    assert 5 <= failed.count <= 14


class NoDisk(NoVolumes):
    """Volumes that can't be set up."""

    tries = 0

    async def set_up(self, pod, lookup):
        NoDisk.tries += 1
        raise VolumeError('MountVolume.SetUp failed for volume "v" : no disk')


def test_a_volume_that_cannot_be_mounted_is_tried_less_and_less():
    NoDisk.tries = 0

    async def scenario(world):
        await world.client.create(simple_pod("web"))
        await clock.sleep(120)
        events = (await world.client.list(Event, "default")).items
        await world.client.delete(Pod, "web", "default")
        took = await took_s(world, world.until_gone(Pod, "web"))
        return [event for event in events if event.reason == "FailedMount"], took

    (failed, took), _ = run_world(47, scenario, volumes=NoDisk)
    assert failed[0].message == 'MountVolume.SetUp failed for volume "v" : no disk'
    assert 12 <= NoDisk.tries <= 20
    assert took < 2


def test_a_failing_sandbox_is_tried_less_and_less_although_events_wake_the_worker():
    async def scenario(world):
        runtime = world.runtimes["node-1"]
        tries = []

        async def refuse(spec):
            tries.append(clock.now_s())
            # A text that differs each time changes what is reported, and so wakes the worker.
            raise RuntimeFailure(f"plugin failed at {clock.now_s()}", "INTERNAL")

        runtime.run_sandbox, make = refuse, runtime.run_sandbox
        await world.client.create(simple_pod("web", nodeName="node-1"))
        await clock.sleep(120)
        number = len(tries)
        runtime.run_sandbox = make
        await world.until_object(Pod, "web", is_running)
        events = (await world.client.list(Event, "default")).items
        return number, [event.message for event in events if event.reason == "FailedCreatePodSandBox"]

    (number, messages), _ = run_world(48, scenario)
    assert 12 <= number <= 20
    assert messages[0].startswith(
        "Failed to create pod sandbox: rpc error: code = Internal desc = plugin failed"
    )


@pytest.mark.parametrize("trouble", ["cut", "frozen"])
def test_pods_restart_and_say_so_later_while_the_server_is_away(trouble):
    async def scenario(world):
        await world.client.create(simple_pod("web"))
        pod = await world.until_object(Pod, "web", is_running)
        link, runtime = world.links[pod.spec.nodeName], world.runtimes[pod.spec.nodeName]
        if trouble == "cut":
            link.cut()
        else:
            link.disturb(delay_s=3000.0)
        (first,) = await containers_of(world, pod)
        runtime.fail_container(first.id, 7)

        async def again():
            newest = (await containers_of(world, pod))[0]
            return newest.state == RUNNING and newest.attempt == 1

        took = await took_s(world, world.until_async(again, "restarted"))
        link.mend()
        said = await world.until_object(
            Pod, "web", lambda pod: pod.status.containerStatuses[0].restartCount == 1, timeout_s=90
        )
        return took, said

    (took, said), _ = run_world(49, scenario)
    assert took < 3
    assert said.status.containerStatuses[0].lastState.terminated.exitCode == 7


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 80))
def test_a_kubelet_that_comes_back_adopts_what_runs(seed):
    """Whatever it hears of first, its pods or its runtime: no container is taken for a leftover."""

    async def scenario(world):
        for number in range(6):
            await world.client.create(simple_pod(f"p{number}", nodeName="node-1"))
        for number in range(6):
            await world.until_object(Pod, f"p{number}", is_running)
        before = {
            container.id for pod in await world.runtimes["node-1"].pods() for container in pod.containers
        }
        for _ in range(5):
            await world.kill("node-1")
            await clock.sleep(0.5)
            world.restart("node-1")
            await clock.sleep(15)
        pods = await world.runtimes["node-1"].pods()
        return before, {c.id: c.state for pod in pods for c in pod.containers}

    (before, after), _ = run_world(seed, scenario, nodes=1)
    assert after == dict.fromkeys(before, RUNNING)
