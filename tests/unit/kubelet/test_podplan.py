"""The pod plan: what is done next for every state a pod can be found in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet import podplan
from kubelet.podplan import (
    Hold,
    Memory,
    RemoveContainer,
    RemoveSandbox,
    RestartBackoff,
    StartContainer,
    StartSandbox,
    StopContainer,
    StopSandbox,
)
from kubelet.podspec import container_hash
from kubelet.runtime.base import CREATED, EXITED, RUNNING, UNKNOWN, ObservedPod, RuntimeContainer, Sandbox
from podyard.api.types import Pod

NOW_S = 10_000.0


def pod(*names: str, policy: str = "Always", init: tuple[str, ...] = (), **spec) -> Pod:
    return Pod(
        metadata={"name": "web", "namespace": "default", "uid": "u1"},
        spec={
            "containers": [{"name": name, "image": "nginx"} for name in names or ("web",)],
            "initContainers": [{"name": name, "image": "busybox"} for name in init],
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
    )


def sandbox(number: int = 0, *, ready: bool = True, ips: tuple[str, ...] = ("10.244.0.2",)) -> Sandbox:
    return Sandbox(f"s{number}", "u1", "web", "default", number, ready, 100.0 + number, ips if ready else ())


def container(name: str = "web", attempt: int = 0, state: str = RUNNING, **fields) -> RuntimeContainer:
    defaults = {"sandbox_id": "s0", "created_at_s": 200.0 + attempt, "finished_at_s": NOW_S - 1}
    return RuntimeContainer(
        id=f"{name}-{attempt}",
        pod_uid="u1",
        name=name,
        attempt=attempt,
        state=state,
        **{**defaults, **fields},
    )


def observed(*containers: RuntimeContainer, sandboxes: tuple[Sandbox, ...] = (sandbox(),)) -> ObservedPod:
    made = sorted(containers, key=lambda c: (-c.attempt, -c.created_at_s))
    return ObservedPod("u1", "web", "default", sandboxes, tuple(made))


def actions(subject: Pod, seen: ObservedPod, memory: Memory | None = None) -> list:
    return list(podplan.plan(subject, seen, memory or Memory(), NOW_S).actions)


def test_nothing_there_begins_with_a_sandbox():
    assert actions(pod(), observed(sandboxes=())) == [StartSandbox(0)]


def test_every_container_starts_in_a_ready_sandbox():
    assert actions(pod("a", "b"), observed()) == [StartContainer("a", 0, "s0"), StartContainer("b", 0, "s0")]


def test_a_running_pod_is_adopted_as_it_is():
    assert actions(pod(), observed(container(hash=container_hash(pod().spec.containers[0])))) == []


def test_a_container_that_was_created_but_not_started_is_made_anew():
    assert actions(pod(), observed(container(state=CREATED, attempt=2))) == [
        RemoveContainer("web-2"),
        StartContainer("web", 2, "s0"),
    ]


def test_a_changed_image_restarts_the_container():
    (action,) = actions(pod(), observed(container(hash="other")))
    assert isinstance(action, StopContainer)
    assert action.message == "Container web definition changed, will be restarted"


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_restart_policy(policy, code, restarts):
    plan = podplan.plan(
        pod(policy=policy), observed(container(state=EXITED, exit_code=code)), Memory(), NOW_S
    )
    started = [action for action in plan.actions if isinstance(action, StartContainer)]
    assert bool(started) is restarts
    # A pod that is over gives its sandbox back.
    assert (StopSandbox("s0") in plan.actions) is not restarts


def test_the_second_restart_waits_from_the_containers_end():
    memory = Memory(restarts={"web": RestartBackoff(10.0, NOW_S - 5)})
    seen = observed(container(state=EXITED, attempt=1, finished_at_s=NOW_S - 4))
    plan = podplan.plan(pod(), seen, memory, NOW_S)
    (hold,) = plan.actions
    assert isinstance(hold, Hold)
    assert hold.waiting.reason == "CrashLoopBackOff"
    assert hold.waiting.message == "back-off 10s restarting failed container=web pod=web_default(u1)"
    assert hold.event == "Back-off restarting failed container web in pod web_default(u1)"
    assert plan.wake_at_s == NOW_S + 6
    later = podplan.plan(pod(), seen, memory, NOW_S + 6)
    assert later.actions == (StartContainer("web", 2, "s0", RestartBackoff(20.0, NOW_S + 6)),)


def test_back_off_ends_at_five_minutes_and_a_long_good_run_forgives():
    capped = Memory(restarts={"web": RestartBackoff(300.0, NOW_S - 400)})
    seen = observed(container(state=EXITED, attempt=9, finished_at_s=NOW_S - 301))
    (action,) = actions(pod(), seen, capped)
    assert action.backoff == RestartBackoff(300.0, NOW_S)
    forgiven = Memory(restarts={"web": RestartBackoff(300.0, NOW_S - 602)})
    (action,) = actions(pod(), observed(container(state=EXITED, attempt=9)), forgiven)
    assert action.backoff == RestartBackoff(10.0, NOW_S)
    # The wait itself is no good run: what crashed 250 s ago after 400 s still waits.
    short = Memory(restarts={"web": RestartBackoff(300.0, NOW_S - 650)})
    crashed = observed(container(state=EXITED, attempt=9, finished_at_s=NOW_S - 250))
    (action,) = actions(pod(), crashed, short)
    assert isinstance(action, Hold)


def test_a_container_that_the_runtime_has_lost_keeps_its_number():
    lost = pod()
    lost.status.containerStatuses.add(name="web", restartCount=4).state.waiting.reason = "ContainerCreating"
    assert actions(lost, observed()) == [StartContainer("web", 4, "s0")]
    lost.status.containerStatuses[0].state.terminated.exitCode = 1
    assert actions(lost, observed()) == [StartContainer("web", 5, "s0")]


def test_a_dead_sandbox_is_replaced_once_nothing_runs_in_it():
    dead = sandbox(ready=False)
    first = actions(pod(), observed(container(), sandboxes=(dead,)))
    assert first == [StopContainer("web-0", "web", 0, None)]
    then = actions(pod(), observed(container(state=EXITED), sandboxes=(dead,)))
    assert then[1:] == [StopSandbox("s0"), StartSandbox(1)]
    assert (then[0].reason, then[0].message) == (
        "SandboxChanged",
        "Pod sandbox changed, it will be killed and re-created.",
    )


def test_a_pod_that_may_not_restart_gets_no_second_sandbox():
    plan = podplan.plan(
        pod(policy="Never"),
        observed(container(state=EXITED, exit_code=255), sandboxes=(sandbox(ready=False),)),
        Memory(),
        NOW_S,
    )
    assert plan.finished
    assert plan.actions == ()


def test_in_a_new_sandbox_the_count_goes_on():
    seen = observed(container(state=EXITED, attempt=3), sandboxes=(sandbox(1), sandbox(0, ready=False)))
    assert actions(pod(), seen) == [StartContainer("web", 4, "s1", RestartBackoff(10.0, NOW_S))]


def test_init_containers_run_one_after_another_before_the_others():
    subject = pod("web", init=("one", "two"))
    assert actions(subject, observed()) == [StartContainer("one", 0, "s0")]
    assert actions(subject, observed(container("one"))) in ([], [StopContainer("one-0", "one", 30.0, None)])
    done = container("one", state=EXITED)
    assert actions(subject, observed(done)) == [StartContainer("two", 0, "s0")]
    both = (done, container("two", state=EXITED))
    assert actions(subject, observed(*both)) == [StartContainer("web", 0, "s0")]


def test_a_failed_init_container_ends_a_pod_that_may_not_restart():
    failed = container("one", state=EXITED, exit_code=1)
    assert podplan.is_terminal(pod(policy="Never", init=("one",)), observed(failed))
    restarted = actions(pod(policy="Always", init=("one",)), observed(failed))
    assert restarted == [StartContainer("one", 1, "s0", RestartBackoff(10.0, NOW_S))]


def test_only_the_last_dead_container_of_a_name_is_kept():
    seen = observed(
        container(attempt=3),
        container(attempt=2, state=EXITED),
        container(attempt=1, state=EXITED),
        container(attempt=0, state=EXITED, sandbox_id="s-old"),
        sandboxes=(sandbox(), Sandbox("s-old", "u1", "web", "default", 0, False, 1.0)),
    )
    removed = actions(pod(), seen)
    assert removed[:3] == [RemoveContainer("web-1"), RemoveContainer("web-0"), RemoveSandbox("s-old")]


def test_termination_stops_then_frees_the_sandbox_then_is_finished():
    memory = Memory()
    first = podplan.plan_termination(observed(container(), container("b")), memory, grace_s=7)
    assert first.actions == (
        StopContainer("web-0", "web", 7, "Stopping container web"),
        StopContainer("b-0", "b", 7, "Stopping container b"),
    )
    ended = observed(container(state=EXITED))
    assert podplan.plan_termination(ended, memory, grace_s=7).actions == (StopSandbox("s0"),)
    assert podplan.plan_termination(observed(sandboxes=(sandbox(ready=False),)), memory, grace_s=7).finished


def test_removal_takes_everything():
    seen = observed(container(state=EXITED), sandboxes=(sandbox(ready=False),))
    assert podplan.plan_removal(seen).actions == (RemoveContainer("web-0"), RemoveSandbox("s0"))
    assert podplan.plan_removal(ObservedPod("u1")).finished


states = st.sampled_from([CREATED, RUNNING, EXITED, UNKNOWN])


@given(
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    ready=st.booleans(),
    made=st.lists(st.tuples(st.sampled_from(["a", "b"]), states, st.integers(0, 1)), max_size=5),
    ending=st.booleans(),
)
def test_whatever_is_found_the_plan_keeps_its_promises(policy, ready, made, ending):
    attempts: dict[str, int] = {}
    containers = []
    for name, state, code in made:
        attempts[name] = attempts.get(name, -1) + 1
        containers.append(container(name, attempts[name], state, exit_code=code))
    seen = observed(*containers, sandboxes=(sandbox(ready=ready),))
    subject = pod("a", "b", policy=policy)
    plan = (
        podplan.plan_termination(seen, Memory(), grace_s=1)
        if ending
        else podplan.plan(subject, seen, Memory(), NOW_S)
    )
    starts = [action for action in plan.actions if isinstance(action, StartContainer)]
    # Nothing is ever started in an ending pod, in a dead sandbox, beside itself, or under a used number.
    assert not (ending and starts)
    assert not (starts and not ready)
    for action in starts:
        own = seen.of(action.name)
        assert all(c.state in (EXITED, CREATED) for c in own[:1])
        removed = {a.container_id for a in plan.actions if isinstance(a, RemoveContainer)}
        assert action.attempt not in {c.attempt for c in own if c.id not in removed}
        assert policy != "Never" or not own or own[0].state == CREATED
    if plan.finished:
        assert not any(c.state in (RUNNING, UNKNOWN) for c in containers)
