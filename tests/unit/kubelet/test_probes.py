"""Probes: thresholds, what their results mean, and the tasks that carry them out on virtual time."""

from __future__ import annotations

import pytest

from kubelet.prober import PodProber
from kubelet.probes import (
    Health,
    Outcome,
    Streak,
    after,
    doom,
    doom_grace_s,
    exec_outcome,
    failed_kind,
    http_outcome,
    is_ready,
    is_started,
    unhealthy_text,
)
from kubelet.runtime.base import RUNNING, ObservedPod, RuntimeContainer, Sandbox
from podyard.api.types import Pod, core_v1
from podyard.base import clock
from podyard.base.run import Background


def probe(**fields) -> core_v1.Probe:
    defaults = {"periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}
    return core_v1.Probe(**{**defaults, **fields})


def container(**probes):
    pod = Pod(spec={"containers": [{"name": "web", "image": "nginx"}]})
    for name, value in probes.items():
        getattr(pod.spec.containers[0], f"{name}Probe").CopyFrom(value)
    return pod.spec.containers[0]


def test_a_result_changes_only_past_its_threshold():
    subject = probe(failureThreshold=3, successThreshold=2)
    streak, results = Streak(), []
    for ok in (True, True, False, False, True, False, False, False, True, True):
        streak = after(streak, subject, ok=ok)
        results.append(streak.result)
    assert results == [None, True, True, True, True, True, True, False, False, True]


def test_without_probes_running_is_enough():
    assert is_started(container(), Health())
    assert is_ready(container(), Health())
    assert failed_kind(container(), Health()) is None


def test_with_a_readiness_probe_nothing_is_ready_before_its_first_success():
    subject = container(readiness=probe())
    assert not is_ready(subject, Health())
    assert is_ready(subject, Health(ready=True))
    assert not is_ready(subject, Health(ready=False))


def test_a_startup_probe_holds_everything_back():
    subject = container(startup=probe())
    assert not is_started(subject, Health())
    assert not is_ready(subject, Health())
    assert is_ready(subject, Health(started=True))


@pytest.mark.parametrize(
    ("kind", "health", "failed"),
    [
        ("liveness", Health(live=False), "liveness"),
        ("startup", Health(started=False), "startup"),
        ("liveness", Health(live=True), None),
        ("liveness", Health(), None),
        ("readiness", Health(ready=False), None),
    ],
)
def test_who_is_doomed(kind, health, failed):
    assert failed_kind(container(**{kind: probe()}), health) == failed


def test_the_text_of_an_end_by_probe_says_whether_it_starts_again():
    assert (
        doom(container(), "liveness", restarts=True)
        == "Container web failed liveness probe, will be restarted"
    )
    assert doom(container(), "liveness", restarts=False) == "Container web failed liveness probe"


def test_a_probe_may_have_a_grace_of_its_own():
    subject = container(liveness=probe(terminationGracePeriodSeconds=3), startup=probe())
    assert doom_grace_s(subject, "liveness", 30.0) == 3
    assert doom_grace_s(subject, "startup", 30.0) == 30


def test_outcomes_and_texts():
    assert http_outcome(302, "").ok
    assert http_outcome(500, "").text == "HTTP probe failed with statuscode: 500"
    assert exec_outcome(1, "no such file") == Outcome(False, "no such file")
    assert unhealthy_text("liveness", Outcome(False, "x")) == "Liveness probe failed: x"


class Script:
    """Handlers that answer as a list says, then for ever as its last entry."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.asked_at_s: list[float] = []

    async def run(self, handler, container, container_id, address, timeout_s):
        self.asked_at_s.append(clock.now_s())
        ok = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Outcome(ok, "" if ok else "down")


def running(pod, container_id="c1"):
    sandbox = Sandbox("s1", "u1", "web", "default", 0, True, 0.0, ("10.244.0.2",))
    one = RuntimeContainer(container_id, "s1", "u1", "web", 0, RUNNING, 0.0, started_at_s=clock.now_s())
    return ObservedPod("u1", "web", "default", (sandbox,), (one,))


def pod_with(**probes) -> Pod:
    made = Pod(metadata={"name": "web", "uid": "u1"})
    made.spec.containers.append(container(**probes))
    return made


@pytest.mark.virtual
async def test_readiness_follows_the_probe_and_wakes_the_worker():
    script, woken, said = Script(False, False, True), [], []
    async with Background() as background:
        prober = PodProber(
            script, background, {}, lambda: woken.append(clock.now_s()), lambda *event: said.append(event)
        )
        began_s = clock.now_s()
        pod = pod_with(readiness=probe(initialDelaySeconds=5, periodSeconds=2, failureThreshold=1))
        prober.follow(pod, running(pod), "10.244.0.2", ending=False)
        await clock.sleep(20)
        assert prober.health("c1") == Health(ready=True)
    assert script.asked_at_s[0] - began_s == pytest.approx(5, abs=0.1)
    assert len(woken) == 2
    assert said[0] == ("Warning", "Unhealthy", "Readiness probe failed: down", "web")


@pytest.mark.virtual
async def test_liveness_waits_for_the_startup_probe():
    script = Script(False, True, False)
    async with Background() as background:
        prober = PodProber(script, background, {}, lambda: None, lambda *event: None)
        pod = pod_with(
            startup=probe(periodSeconds=10, failureThreshold=30),
            liveness=probe(periodSeconds=5, failureThreshold=2),
        )
        prober.follow(pod, running(pod), "10.244.0.2", ending=False)
        await clock.sleep(9)
        assert prober.health("c1") == Health()
        await clock.sleep(30)
        assert prober.health("c1") == Health(started=True, live=False)


@pytest.mark.virtual
async def test_a_restarted_container_is_probed_anew():
    script = Script(True)
    async with Background() as background:
        prober = PodProber(script, background, {}, lambda: None, lambda *event: None)
        pod = pod_with(readiness=probe())
        prober.follow(pod, running(pod, "c1"), "10.244.0.2", ending=False)
        await clock.sleep(1)
        assert prober.health("c1").ready
        prober.follow(pod, running(pod, "c2"), "10.244.0.2", ending=False)
        assert prober.health("c1") == Health()
        assert prober.health("c2") == Health()
        await clock.sleep(1)
        assert prober.health("c2").ready
