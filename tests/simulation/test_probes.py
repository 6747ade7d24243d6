"""Probes and hooks on whole clusters: who is ready, who is started again, who ends late."""

from __future__ import annotations

import asyncio

import pytest

from kubelet.runtime.hollow import Stage
from podyard.api.types import Event, Pod
from podyard.base import clock
from podyard.testing.world import run_world, simple_pod

STAGES = {
    "crash": Stage(runs_s=0.1, exit_code=1),
    "slow": Stage(answers_from_s=40.0),
    "dies": Stage(answers_until_s=60.0),
    "mute": Stage(answers_from_s=1e9),
}


def probed(image: str, **probes) -> Pod:
    pod = simple_pod("web", image=image)
    for name, fields in probes.items():
        probe = getattr(pod.spec.containers[0], f"{name}Probe")
        probe.handler.httpGet.port.intVal = 80
        for field, value in fields.items():
            setattr(probe, field, value)
    return pod


def ready(pod) -> bool:
    return any(entry.type == "Ready" and entry.status == "True" for entry in pod.status.conditions)


def restarts(pod) -> int:
    return pod.status.containerStatuses[0].restartCount if pod.status.containerStatuses else 0


async def reasons(world) -> list[str]:
    return [event.message for event in (await world.client.list(Event)).items if "probe" in event.message]


def test_a_pod_is_ready_once_its_readiness_probe_succeeds():
    async def scenario(world):
        await world.client.create(probed("slow", readiness={"periodSeconds": 5}))
        pod = await world.until_object(Pod, "web", lambda pod: pod.status.phase == "Running")
        assert not ready(pod)
        assert not pod.status.containerStatuses[0].ready
        began_s = pod.status.containerStatuses[0].state.running.startedAt.seconds
        pod = await world.until_object(Pod, "web", ready)
        assert 39 <= clock.now_s() - began_s <= 48
        assert restarts(pod) == 0
        assert "Readiness probe failed: connection refused" in await reasons(world)

    run_world(1, scenario, stages=STAGES)


def test_a_pod_whose_liveness_fails_is_started_again():
    async def scenario(world):
        await world.client.create(probed("dies", liveness={"periodSeconds": 10, "failureThreshold": 3}))
        pod = await world.until_object(Pod, "web", lambda pod: restarts(pod) == 1)
        before = pod.status.containerStatuses[0].lastState.terminated
        assert 80 <= before.finishedAt.seconds - before.startedAt.seconds <= 100
        assert "Container web failed liveness probe, will be restarted" in await reasons(world)

    run_world(1, scenario, stages=STAGES)


def test_a_container_that_never_starts_up_is_started_again_and_never_ready():
    async def scenario(world):
        await world.client.create(
            probed("mute", startup={"periodSeconds": 5, "failureThreshold": 4}, liveness={"periodSeconds": 1})
        )
        pod = await world.until_object(Pod, "web", lambda pod: restarts(pod) == 1)
        assert not pod.status.containerStatuses[0].started
        said = await reasons(world)
        assert "Container web failed startup probe, will be restarted" in said
        assert not [text for text in said if text.startswith("Liveness")]

    run_world(1, scenario, stages=STAGES)


def test_a_pod_that_may_not_restart_fails_by_its_liveness():
    async def scenario(world):
        pod = probed("mute", liveness={"periodSeconds": 5})
        pod.spec.restartPolicy = "Never"
        await world.client.create(pod)
        pod = await world.until_object(Pod, "web", lambda pod: pod.status.phase in ("Failed", "Succeeded"))
        assert restarts(pod) == 0

    run_world(1, scenario, stages=STAGES)


def test_a_restarted_kubelet_takes_no_ready_pod_out_of_its_services():
    async def scenario(world):
        await world.client.create(probed("slow", readiness={"periodSeconds": 5, "initialDelaySeconds": 60}))
        await world.until_object(Pod, "web", ready)
        await world.kill("node-1")
        await clock.sleep(5)
        world.restart("node-1")
        await clock.sleep(100)
        pod = await world.client.get(Pod, "web", "default")
        ready_since = next(entry for entry in pod.status.conditions if entry.type == "Ready")
        assert ready(pod)
        assert clock.now_s() - ready_since.lastTransitionTime.seconds > 100

    run_world(1, scenario, stages=STAGES, nodes=1)


@pytest.mark.parametrize(("seconds", "expected_s"), [(12, 12), (30, 30)])
def test_a_pre_stop_hook_takes_its_time_from_the_grace(seconds, expected_s):
    async def scenario(world):
        pod = simple_pod("web")
        pod.spec.containers[0].lifecycle.preStop.sleep.seconds = seconds
        await world.client.create(pod)
        await world.until_object(Pod, "web", lambda pod: pod.status.phase == "Running")
        await world.client.delete(Pod, "web", "default")
        began_s = clock.now_s()
        await world.until_gone(Pod, "web")
        assert expected_s <= clock.now_s() - began_s <= expected_s + 5

    run_world(1, scenario)


def test_a_pod_past_its_deadline_fails():
    async def scenario(world):
        pod = simple_pod("web")
        pod.spec.activeDeadlineSeconds = 20
        await world.client.create(pod)
        pod = await world.until_object(Pod, "web", lambda pod: pod.status.phase == "Failed")
        assert pod.status.reason == "DeadlineExceeded"
        assert 19 <= clock.now_s() - pod.status.startTime.seconds <= 25

        async def ended():
            found = await world.runtimes[pod.spec.nodeName].pod(pod.metadata.uid)
            return not found.running

        await world.until_async(ended, "nothing runs")
        pod = await world.client.get(Pod, "web", "default")
        assert pod.status.reason == "DeadlineExceeded"

    run_world(1, scenario)


def test_a_container_that_ends_at_once_never_looks_ready():
    async def scenario(world):
        await world.client.create(simple_pod("web", image="crash"))
        async with asyncio.timeout(300):
            async for batch in world.client.watch(Pod, send_initial_events=True):
                for event in batch.events:
                    assert not ready(event.object)
                    if restarts(event.object) >= 3:
                        return

    run_world(1, scenario, stages=STAGES)


def test_a_ready_pod_gives_no_reason_why_it_is_not():
    async def scenario(world):
        await world.client.create(probed("slow", readiness={"periodSeconds": 5}))
        await world.until_object(Pod, "web", ready)
        pod = await world.client.get(Pod, "web", "default")
        assert {entry.reason for entry in pod.status.conditions} == {""}
        assert {entry.message for entry in pod.status.conditions} == {""}

    run_world(1, scenario, stages=STAGES)


def test_a_shorter_grace_does_not_wait_for_the_hook():
    async def scenario(world):
        pod = simple_pod("web")
        pod.spec.containers[0].lifecycle.preStop.sleep.seconds = 29
        await world.client.create(pod)
        await world.until_object(Pod, "web", lambda pod: pod.status.phase == "Running")
        await world.client.delete(Pod, "web", "default")
        await clock.sleep(5)
        await world.client.delete(Pod, "web", "default", grace_s=2)
        began_s = clock.now_s()
        await world.until_gone(Pod, "web")
        assert clock.now_s() - began_s <= 4

    run_world(1, scenario)


def test_a_failing_start_hook_starts_the_container_again():
    async def scenario(world):
        pod = simple_pod("web", image="mute")
        pod.spec.containers[0].lifecycle.postStart.exec.command.append("false")
        await world.client.create(pod)
        pod = await world.until_object(Pod, "web", lambda pod: restarts(pod) >= 1)
        events = [event.reason for event in (await world.client.list(Event)).items]
        assert "FailedPostStartHook" in events
        assert not ready(pod)

    run_world(1, scenario, stages=STAGES)
