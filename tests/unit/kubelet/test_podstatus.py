"""A pod's status: phase, container states and conditions for what the runtime shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubelet.podplan import Memory, Waiting
from kubelet.podstatus import NodeFacts, changes_at_s, pod_status
from kubelet.probes import Health
from kubelet.runtime.base import CREATED, EXITED, RUNNING, ObservedPod, RuntimeContainer, Sandbox
from podyard.api.types import Pod, PodStatus

NOW_S = 1_000.0
NODE = NodeFacts(("192.0.2.1",))


def pod(
    policy: str = "Always", *, names: tuple[str, ...] = ("web",), init: tuple[str, ...] = (), **spec
) -> Pod:
    return Pod(
        metadata={"name": "web", "namespace": "default", "uid": "u1", "generation": 3},
        spec={
            "restartPolicy": policy,
            "containers": [{"name": name, "image": "nginx"} for name in names],
            "initContainers": [{"name": name, "image": "busybox"} for name in init],
            **spec,
        },
    )


def container(name: str = "web", state: str = RUNNING, attempt: int = 0, code: int = 0) -> RuntimeContainer:
    return RuntimeContainer(
        id=f"{name}-{attempt}",
        sandbox_id="s0",
        pod_uid="u1",
        name=name,
        attempt=attempt,
        state=state,
        created_at_s=10,
        started_at_s=20 if state != CREATED else 0,
        finished_at_s=30 if state == EXITED else 0,
        exit_code=code,
    )


def seen(
    *containers: RuntimeContainer, ready: bool = True, ips: tuple[str, ...] = ("10.244.0.2",)
) -> ObservedPod:
    box = Sandbox("s0", "u1", "web", "default", 0, ready, 5.0, ips if ready else ())
    return ObservedPod("u1", "web", "default", (box,), containers)


def status_of(subject: Pod, observed: ObservedPod, memory: Memory | None = None, **more) -> PodStatus:
    return pod_status(subject, observed, memory or Memory(), NODE, NOW_S, **more)


def condition(status: PodStatus, name: str):
    (found,) = [entry for entry in status.conditions if entry.type == name]
    return found.status, found.reason, found.message


EXIT_0, EXIT_1 = container(state=EXITED), container(state=EXITED, code=1)
BACK_OFF = Memory(waiting={"web": Waiting("CrashLoopBackOff", "back-off 10s")})


@pytest.mark.parametrize(
    ("policy", "observed", "memory", "phase"),
    [
        ("Always", ObservedPod("u1"), None, "Pending"),
        ("Always", seen(), None, "Pending"),
        ("Always", seen(container(state=CREATED)), None, "Pending"),
        ("Always", seen(container()), None, "Running"),
        ("Always", seen(EXIT_1), None, "Running"),
        ("Always", seen(EXIT_1), BACK_OFF, "Running"),
        ("OnFailure", seen(EXIT_1), None, "Running"),
        ("OnFailure", seen(EXIT_0), None, "Succeeded"),
        ("Never", seen(EXIT_0), None, "Succeeded"),
        ("Never", seen(EXIT_1), None, "Failed"),
    ],
)
def test_the_phase_follows_the_containers(policy, observed, memory, phase):
    assert status_of(pod(policy), observed, memory).phase == phase


@pytest.mark.parametrize(
    ("first", "second", "phase"),
    [
        (container("a"), None, "Pending"),
        (container("a"), container("b"), "Running"),
        (container("a"), container("b", EXITED, code=1), "Running"),
        (container("a", EXITED), container("b", EXITED), "Succeeded"),
        (container("a", EXITED), container("b", EXITED, code=2), "Failed"),
    ],
)
def test_a_pod_of_two_containers(first, second, phase):
    observed = seen(*(one for one in (first, second) if one is not None))
    assert status_of(pod("Never", names=("a", "b")), observed).phase == phase


@pytest.mark.parametrize(
    ("policy", "init", "phase", "ready"),
    [
        ("Always", None, "Pending", False),
        ("Always", container("prepare"), "Pending", False),
        ("Always", container("prepare", EXITED, code=1), "Pending", False),
        ("Never", container("prepare", EXITED, code=1), "Failed", False),
        ("Always", container("prepare", EXITED), "Pending", True),
    ],
)
def test_init_containers_come_first(policy, init, phase, ready):
    status = status_of(pod(policy, init=("prepare",)), seen(*([init] if init else [])))
    assert status.phase == phase
    assert status.initContainerStatuses[0].ready is ready
    assert status.containerStatuses[0].state.waiting.reason == "PodInitializing"
    expected = (
        ("True", "", "")
        if ready
        else (
            "False",
            "ContainersNotInitialized",
            "containers with incomplete status: [prepare]",
        )
    )
    assert condition(status, "Initialized") == expected


def test_an_init_container_shows_its_crash_loop():
    memory = Memory(waiting={"prepare": Waiting("CrashLoopBackOff", "back-off 10s")})
    status = status_of(pod(init=("prepare",)), seen(container("prepare", EXITED, 2, code=7)), memory)
    (shown,) = status.initContainerStatuses
    assert (shown.state.waiting.reason, shown.restartCount) == ("CrashLoopBackOff", 2)
    assert shown.lastState.terminated.exitCode == 7


def test_a_waiting_init_container_is_initializing():
    status = status_of(pod(init=("prepare",)), ObservedPod("u1"))
    assert status.initContainerStatuses[0].state.waiting.reason == "PodInitializing"
    assert (
        status_of(pod(), ObservedPod("u1")).containerStatuses[0].state.waiting.reason == "ContainerCreating"
    )


def test_a_running_container_says_so():
    old = container(state=EXITED, code=3)
    status = status_of(pod(), seen(container(attempt=1), old))
    (shown,) = status.containerStatuses
    assert shown.containerID == "containerd://web-1"
    assert (shown.ready, shown.started, shown.restartCount) == (True, True, 1)
    assert shown.state.running.startedAt.seconds == 20
    ended = shown.lastState.terminated
    assert (ended.exitCode, ended.reason, ended.finishedAt.seconds) == (3, "Error", 30)
    assert condition(status, "Ready") == ("True", "", "")


def test_what_is_not_ready_is_named():
    status = status_of(pod(names=("a", "b")), seen(container("a")))
    text = "containers with unready status: [b]"
    assert condition(status, "ContainersReady") == ("False", "ContainersNotReady", text)
    assert condition(status, "Ready") == ("False", "ContainersNotReady", text)


@pytest.mark.parametrize(("code", "reason"), [(0, "PodCompleted"), (1, "PodFailed")])
def test_a_pod_that_has_ended_is_not_ready_any_more(code, reason):
    status = status_of(pod("Never"), seen(container(state=EXITED, code=code), ready=False))
    assert condition(status, "Ready") == ("False", reason, "")
    assert condition(status, "ContainersReady") == ("False", reason, "")
    assert condition(status, "Initialized")[0] == "True"
    assert condition(status, "PodReadyToStartContainers")[0] == "False"


def test_readiness_gates_of_others_count():
    subject = pod(readinessGates=[{"conditionType": "example.com/lb"}])
    missing = 'corresponding condition of pod readiness gate "example.com/lb" does not exist.'
    assert condition(status_of(subject, seen(container())), "Ready") == (
        "False",
        "ReadinessGatesNotReady",
        missing,
    )
    subject.status.conditions.add(type="example.com/lb", status="False")
    refused = 'the status of pod readiness gate "example.com/lb" is not "True", but False'
    assert condition(status_of(subject, seen(container())), "Ready")[2] == refused
    subject.status.conditions[0].status = "True"
    status = status_of(subject, seen(container()))
    assert condition(status, "Ready")[0] == "True"
    assert condition(status, "example.com/lb")[0] == "True"


# The end of a pod.


def test_a_pod_that_ends_by_deletion_keeps_its_phase_until_nothing_runs():
    subject = pod()
    subject.metadata.deletionTimestamp.seconds = 900
    assert status_of(subject, seen(container())).phase == "Running"
    assert status_of(subject, seen(container(state=EXITED, code=137))).phase == "Running"


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (137, "Failed")])
def test_at_its_end_it_has_succeeded_or_failed_whatever_its_policy(code, phase):
    status = status_of(pod(), seen(container(state=EXITED, code=code), ready=False), ended=True)
    assert status.phase == phase
    assert not status.containerStatuses[0].state.HasField("waiting")


def test_a_pod_that_never_ran_has_failed_and_its_containers_count_as_killed():
    status = status_of(
        pod(), ObservedPod("u1"), Memory(waiting={"web": Waiting("ErrImagePull", "no")}), ended=True
    )
    assert status.phase == "Failed"
    ended = status.containerStatuses[0].state.terminated
    assert (ended.exitCode, ended.reason) == (137, "ContainerStatusUnknown")
    assert ended.message == "The container could not be located when the pod was terminated"


def test_containers_behind_an_init_container_that_never_ended_stay_waiting():
    status = status_of(pod(init=("prepare",)), seen(container("prepare", EXITED, code=1)), ended=True)
    assert status.phase == "Failed"
    assert status.containerStatuses[0].state.waiting.reason == "PodInitializing"


def test_the_last_phase_is_the_last():
    subject = pod()
    subject.status.phase = "Failed"
    assert status_of(subject, seen(container())).phase == "Failed"


# What the runtime has lost.


def lost(policy: str = "Always", **old) -> PodStatus:
    subject = pod(policy)
    subject.status.containerStatuses.add(name="web", **old)
    return status_of(subject, seen())


def test_a_container_that_ran_and_is_gone_counts_as_ended_and_restarted():
    status = lost(restartCount=2, state={"running": {}})
    (shown,) = status.containerStatuses
    assert shown.restartCount == 3
    assert shown.lastState.terminated.reason == "ContainerStatusUnknown"
    assert shown.lastState.terminated.exitCode == 137
    assert status.phase == "Running"


def test_a_pod_that_may_not_restart_fails_when_its_container_is_lost():
    assert lost("Never", state={"running": {}}).phase == "Failed"
    assert lost("Never", state={"terminated": {"exitCode": 0}}).phase == "Succeeded"


# Times.


def test_times_move_with_changes_only_also_before_the_watch_has_shown_the_first_report():
    subject = pod()
    first = pod_status(subject, ObservedPod("u1"), Memory(), NODE, 100.0)
    again = pod_status(subject, ObservedPod("u1"), Memory(), NODE, 200.0, previous=first)
    assert again == first
    running = pod_status(subject, seen(container()), Memory(), NODE, 300.0, previous=again)
    later = pod_status(subject, seen(container()), Memory(), NODE, 400.0, previous=running)
    assert later == running
    assert later.startTime.seconds == 100
    moved = {entry.type: entry.lastTransitionTime.seconds for entry in later.conditions}
    assert moved == {
        "PodReadyToStartContainers": 300,
        "Initialized": 100,
        "Ready": 300,
        "ContainersReady": 300,
        "PodScheduled": 100,
    }
    assert all(entry.observedGeneration == 3 for entry in later.conditions)


# Addresses.


def test_addresses_of_pod_and_node():
    status = status_of(pod(), seen(container()))
    assert (status.podIP, [entry.ip for entry in status.podIPs]) == ("10.244.0.2", ["10.244.0.2"])
    assert (status.hostIP, [entry.ip for entry in status.hostIPs]) == ("192.0.2.1", ["192.0.2.1"])
    host = status_of(pod(hostNetwork=True), seen(container(), ips=()))
    assert host.podIP == "192.0.2.1"


def test_a_pod_that_has_ended_keeps_its_address_in_view():
    first = status_of(pod("Never"), seen(container()))
    last = status_of(pod("Never"), seen(EXIT_0, ready=False), previous=first)
    assert last.podIP == "10.244.0.2"


@pytest.mark.parametrize("started_at_s", [1700000041.73 + n / 7 for n in range(50)])
def test_a_status_is_another_one_when_it_was_said_to_change(started_at_s):
    observed = seen(replace(container(), started_at_s=started_at_s))
    at_s = changes_at_s(pod(), observed, started_at_s)

    def ready(now_s):
        return pod_status(pod(), observed, Memory(), NODE, now_s).containerStatuses[0].ready

    assert not ready(at_s - 0.01)
    assert ready(at_s)
    assert changes_at_s(pod(), observed, at_s) is None


def test_a_start_in_the_future_is_another_clocks_and_waited_for_by_nobody():
    observed = seen(replace(container(), started_at_s=NOW_S + 500))
    assert status_of(pod(), observed).containerStatuses[0].ready


def test_what_no_probe_has_decided_yet_stays_as_it_was():
    subject = pod()
    subject.spec.containers[0].readinessProbe.periodSeconds = 10
    observed = seen(container())
    assert not status_of(subject, observed).containerStatuses[0].ready
    before = status_of(subject, observed, Memory(health={"web-0": Health(ready=True)}))
    assert before.containerStatuses[0].ready
    assert status_of(subject, observed, previous=before).containerStatuses[0].ready
    lost = Memory(health={"web-0": Health(ready=False)})
    assert not status_of(subject, observed, lost, previous=before).containerStatuses[0].ready
