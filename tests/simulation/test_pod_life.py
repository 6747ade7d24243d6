"""A pod's life on hollow nodes, with the real API server, scheduler, controllers and kubelets."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kubelet.runtime.hollow import Stage
from podyard.api import errors
from podyard.api.types import ConfigMap, Event, Key, Namespace, Node, Pod, ServiceAccount
from podyard.base import clock
from podyard.testing.world import run_world, simple_pod
from tests.simulation.hashing import last_lines


async def create_run_delete(world):
    await world.client.create(simple_pod("web"))
    pod = await world.until_object(
        Pod, "web", lambda pod: pod.status.containerStatuses and pod.status.containerStatuses[0].ready
    )
    await world.client.delete(Pod, "web", "default")
    await world.until_gone(Pod, "web")
    return pod


def test_a_pod_is_created_bound_runs_and_is_deleted():
    pod, _ = run_world(1, create_run_delete)
    assert pod.spec.nodeName in ("node-1", "node-2")
    assert pod.status.podIP.startswith("10.244.")
    ready = {condition.type: condition.status for condition in pod.status.conditions}
    assert ready == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    assert pod.status.containerStatuses[0].ready
    assert pod.status.qosClass == "BestEffort"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_seed_gives_the_same_history(seed):
    first, second = (run_world(seed, create_run_delete)[1] for _ in range(2))
    assert str(first) == str(second)


def test_the_history_does_not_depend_on_string_hashing():
    program = (
        "from tests.simulation.test_pod_life import create_run_delete\n"
        "from podyard.testing.world import run_world\n"
        "print(run_world(7, create_run_delete)[1].digest())\n"
    )
    assert len(last_lines(program)) == 1


def test_a_pod_that_fits_nowhere_waits_and_goes_when_a_node_comes():
    async def scenario(world):
        big = simple_pod("big")
        big.spec.nodeSelector["size"] = "large"
        await world.client.create(big)
        pod = await world.until_object(Pod, "big", lambda pod: len(pod.status.conditions) == 1)
        await world.client.patch(Node, "node-2", body={"metadata": {"labels": {"size": "large"}}})
        bound = await world.until_object(Pod, "big", lambda pod: pod.status.phase == "Running")
        return pod, bound

    (pod, bound), _ = run_world(3, scenario)
    condition = pod.status.conditions[0]
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")
    assert condition.message == (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. "
        "no new claims to deallocate, preemption: 0/2 nodes are available: "
        "2 Preemption is not helpful for scheduling."
    )
    assert bound.spec.nodeName == "node-2"


def test_a_failing_container_restarts_with_growing_back_off():
    async def scenario(world):
        await world.client.create(simple_pod("crash", image="crash"))
        starts = []
        seen = 0
        while len(starts) < 5:
            pod = await world.until_object(
                Pod,
                "crash",
                lambda pod, seen=seen: (
                    bool(pod.status.containerStatuses)
                    and pod.status.containerStatuses[0].state.HasField("running")
                    and pod.status.containerStatuses[0].restartCount >= seen
                ),
                timeout_s=400,
            )
            starts.append(pod.status.containerStatuses[0].state.running.startedAt.seconds)
            seen = pod.status.containerStatuses[0].restartCount + 1
        events = await world.client.list(Event, "default")
        return starts, [event.reason for event in events.items if event.involvedObject.name == "crash"]

    (starts, reasons), _ = run_world(5, scenario, stages={"crash": Stage(runs_s=1.0, exit_code=1)})
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    # The first restart is immediate, then 10, 20 and 40 s after the container's end.
    assert [round(gap, -1) for gap in gaps] == [0, 10, 20, 40]
    assert "BackOff" in reasons


def test_a_pod_that_may_not_restart_ends_and_says_how():
    async def scenario(world):
        await world.client.create(simple_pod("ok", image="ok", restartPolicy="Never"))
        await world.client.create(simple_pod("bad", image="bad", restartPolicy="OnFailure"))
        ok = await world.until_object(Pod, "ok", lambda pod: pod.status.phase == "Succeeded")
        bad = await world.until_object(
            Pod, "bad", lambda pod: pod.status.containerStatuses[0].restartCount > 1
        )
        return ok, bad

    stages = {"ok": Stage(runs_s=2.0), "bad": Stage(runs_s=1.0, exit_code=3)}
    (ok, bad), _ = run_world(6, scenario, stages=stages)
    assert ok.status.containerStatuses[0].state.terminated.reason == "Completed"
    assert bad.status.phase == "Running"
    assert bad.status.containerStatuses[0].lastState.terminated.exitCode == 3


def test_an_image_that_is_not_to_be_had_is_said_so_and_tried_again():
    async def scenario(world):
        await world.client.create(simple_pod("none", image="none"))
        return await world.until_object(
            Pod,
            "none",
            lambda pod: (
                bool(pod.status.containerStatuses)
                and pod.status.containerStatuses[0].state.waiting.reason == "ImagePullBackOff"
            ),
        )

    pod, _ = run_world(8, scenario, stages={"none": Stage(pull_error="not found")})
    waiting = pod.status.containerStatuses[0].state.waiting
    assert waiting.message.startswith(
        'Back-off pulling image "none": ErrImagePull: rpc error: code = NotFound'
    )
    assert pod.status.phase == "Pending"


def test_the_grace_of_a_deletion_is_kept_and_then_the_container_killed():
    async def scenario(world):
        await world.client.create(simple_pod("slow", image="slow"))
        await world.until_object(Pod, "slow", lambda pod: pod.status.phase == "Running")
        began_s = clock.now_s()
        await world.client.delete(Pod, "slow", "default", grace_s=7)
        ending = await world.client.get(Pod, "slow", "default")
        await world.until_gone(Pod, "slow")
        return ending, clock.now_s() - began_s

    (ending, took_s), _ = run_world(9, scenario, stages={"slow": Stage(stop_s=1000)})
    assert ending.metadata.deletionGracePeriodSeconds == 7
    assert took_s == pytest.approx(7, abs=0.3)


def test_a_namespace_takes_all_that_is_in_it_along():
    async def scenario(world):
        await world.client.create(Namespace(metadata={"name": "team"}))
        await world.until_object(ServiceAccount, "default", lambda _: True, namespace="team")
        pod = simple_pod("web")
        pod.metadata.namespace = "team"
        await world.client.create(pod)
        await world.client.create(ConfigMap(metadata={"name": "conf", "namespace": "team"}))
        await world.until_object(Pod, "web", lambda pod: pod.status.phase == "Running", namespace="team")
        await world.client.delete(Namespace, "team")
        refused = ""
        try:
            await world.client.create(ConfigMap(metadata={"name": "late", "namespace": "team"}))
        except errors.Forbidden as error:
            refused = error.message
        await world.until_gone(Namespace, "team", namespace="")
        left = [
            len((await world.client.list(kind, "team")).items) for kind in (Pod, ConfigMap, ServiceAccount)
        ]
        return refused, left

    (refused, left), _ = run_world(10, scenario)
    assert "because it is being terminated" in refused
    assert left == [0, 0, 0]


def test_pods_of_a_node_that_is_gone_are_collected():
    async def scenario(world):
        orphan = simple_pod("orphan", nodeName="gone-for-good")
        await world.client.create(orphan)
        began_s = clock.now_s()
        await world.until_gone(Pod, "orphan", timeout_s=120)
        return clock.now_s() - began_s

    took_s, _ = run_world(11, scenario)
    assert 40 <= took_s <= 62


def test_an_idle_cluster_writes_nothing_but_heartbeats():
    async def scenario(world):
        await world.client.create(simple_pod("web"))
        await world.until_object(Pod, "web", lambda pod: pod.status.phase == "Running")
        await clock.sleep(30)
        before = len(world.history.lines)
        await clock.sleep(600)
        return world.history.lines[before:]

    lines, _ = run_world(12, scenario)
    # A node writes its status every five minutes even when nothing changed.
    assert [line for line in lines if " MODIFIED Node " not in line] == []
    assert len(lines) <= 2 * 3


def test_a_cordoned_node_is_tainted_and_gets_no_pods():
    async def scenario(world):
        await world.client.patch(Node, "node-1", body={"spec": {"unschedulable": True}})
        await world.until_object(Node, "node-1", lambda node: bool(node.spec.taints), namespace="")
        for number in range(4):
            await world.client.create(simple_pod(f"p{number}"))
            await world.until_object(Pod, f"p{number}", lambda pod: pod.status.phase == "Running")
        pods = await world.client.list(Pod, "default")
        await world.client.patch(Node, "node-1", body={"spec": {"unschedulable": False}})
        node = await world.until_object(Node, "node-1", lambda node: not node.spec.taints, namespace="")
        return {pod.spec.nodeName for pod in pods.items}, node

    (nodes, node), _ = run_world(13, scenario)
    assert nodes == {"node-2"}
    assert Key("", node.metadata.name) == Key("", "node-1")
