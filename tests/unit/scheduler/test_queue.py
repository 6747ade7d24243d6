"""The scheduling queue: who is next, who waits, and what wakes them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from podyard.api.types import Pod
from scheduler.queue import SchedulingQueue


def pod(name: str, *, priority: int = 0, uid: str = "", **labels: str) -> Pod:
    return Pod(
        metadata={"name": name, "namespace": "default", "uid": uid or name, "labels": labels},
        spec={"priority": priority},
    )


def taken(queue: SchedulingQueue, now_s: float) -> list[str]:
    names = []
    while (waiting := queue.take(now_s)) is not None:
        names.append(waiting.pod.metadata.name)
    return names


def test_priority_first_then_age():
    queue = SchedulingQueue()
    queue.add(pod("old"), 1.0)
    queue.add(pod("new"), 2.0)
    queue.add(pod("important", priority=10), 3.0)
    assert taken(queue, 4.0) == ["important", "old", "new"]


def test_a_pod_that_failed_waits_for_a_change_and_then_for_its_back_off():
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    queue.take(0.0)
    queue.failed("a", 0.0, frozenset({"NodeResourcesFit"}))
    queue.advance(20.0)
    assert taken(queue, 20.0) == []
    queue.wake({"NodeResourcesFit"}, 0.5)
    assert taken(queue, 0.5) == []
    assert queue.next_due_s() == 1.0
    queue.advance(1.0)
    assert taken(queue, 1.0) == ["a"]


def test_back_off_doubles_to_ten_seconds():
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    now_s, delays = 0.0, []
    for _ in range(6):
        queue.take(now_s)
        queue.failed("a", now_s, frozenset(), error=True)
        due_s = queue.next_due_s()
        delays.append(due_s - now_s)
        now_s = due_s
        queue.advance(now_s)
    assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_an_event_that_does_not_help_wakes_nobody():
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    queue.take(0.0)
    queue.failed("a", 0.0, frozenset({"NodeName"}))
    queue.wake({"NodeResourcesFit"}, 5.0)
    queue.wake({"NodeName"}, 5.0, lambda waiting: False)
    queue.advance(299.0)
    assert taken(queue, 299.0) == []


def test_after_five_minutes_it_is_tried_whatever_happened():
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    queue.take(0.0)
    queue.failed("a", 0.0, frozenset({"NodeName"}))
    assert queue.next_due_s() == 300.0
    queue.advance(300.0)
    assert taken(queue, 300.0) == ["a"]


def test_an_event_during_the_attempt_counts_for_it():
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    queue.take(0.0)
    queue.wake({"NodeName"}, 0.0)
    queue.failed("a", 0.0, frozenset({"NodeResourcesFit"}))
    queue.advance(1.0)
    assert taken(queue, 1.0) == ["a"]


def test_a_changed_pod_is_tried_again():
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    queue.take(0.0)
    queue.failed("a", 0.0, frozenset({"NodeName"}))
    queue.add(pod("a"), 2.0)
    queue.advance(2.0)
    assert taken(queue, 2.0) == []
    queue.add(pod("a", app="x"), 3.0)
    queue.advance(3.0)
    assert taken(queue, 3.0) == ["a"]


def test_a_pod_that_is_gone_never_comes_out():
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    queue.remove("a")
    assert taken(queue, 1.0) == []
    queue.add(pod("b"), 0.0)
    queue.take(0.0)
    queue.remove("b")
    queue.failed("b", 0.0, frozenset())
    queue.advance(1000.0)
    assert taken(queue, 1000.0) == []


class QueueMachine(RuleBasedStateMachine):
    """No pod is lost, none comes out twice at once, none comes out after its end."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = SchedulingQueue()
        self.now_s = 0.0
        self.alive: set[str] = set()
        self.flying: set[str] = set()

    @rule(name=st.sampled_from("abcd"), priority=st.integers(0, 2))
    def add(self, name, priority):
        self.alive.add(name)
        self.queue.add(pod(name, priority=priority), self.now_s)

    @rule(name=st.sampled_from("abcd"))
    def remove(self, name):
        self.alive.discard(name)
        self.flying.discard(name)
        self.queue.remove(name)

    @rule()
    def take(self):
        waiting = self.queue.take(self.now_s)
        if waiting is not None:
            name = waiting.pod.metadata.name
            assert name in self.alive
            assert name not in self.flying
            self.flying.add(name)

    @rule(error=st.booleans(), plugin=st.sampled_from(["x", "y"]))
    def fail(self, error, plugin):
        for name in sorted(self.flying):
            self.queue.failed(name, self.now_s, frozenset({plugin}), error=error)
        self.flying.clear()

    @rule(plugin=st.sampled_from(["x", "y"]))
    def wake(self, plugin):
        self.queue.wake({plugin}, self.now_s)

    @rule(step_s=st.floats(0.1, 400))
    def pass_time(self, step_s):
        self.now_s += step_s
        self.queue.advance(self.now_s)

    @invariant()
    def everyone_is_somewhere(self):
        assert sum(self.queue.counts().values()) == len(self.alive - self.flying)

    def teardown(self):
        for name in sorted(self.flying):
            self.queue.failed(name, self.now_s, frozenset(), error=True)
        self.queue.advance(self.now_s + 1000)
        assert set(taken(self.queue, self.now_s + 1000)) == self.alive


QueueMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestQueueMachine = QueueMachine.TestCase
