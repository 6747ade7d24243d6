"""The work queue: fair, stingy, re-entrant, and patient with failures."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from podyard.base.backoff import Backoff
from podyard.control.queue import WorkQueue

BACKOFF = Backoff(base_s=1.0, cap_s=8.0, spread=0.5)


def test_keys_come_out_in_order_and_once():
    queue: WorkQueue[str] = WorkQueue(BACKOFF)
    for key in "abca":
        queue.add(key)
    assert [queue.take() for _ in range(4)] == ["a", "b", "c", None]


def test_a_key_added_while_worked_on_comes_again_and_never_beside_itself():
    queue: WorkQueue[str] = WorkQueue(BACKOFF)
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"
    queue.done("a")
    assert queue.take() is None


def test_failures_wait_longer_each_time_until_forgotten():
    queue: WorkQueue[str] = WorkQueue(BACKOFF)
    assert [queue.retry("a", 0.0, 0.0) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    queue.forget("a")
    assert queue.retry("a", 0.0, 0.5) == 1.25


def test_the_earlier_of_two_appointments_stands():
    queue: WorkQueue[str] = WorkQueue(BACKOFF)
    queue.add_at("a", 10.0)
    queue.add_at("a", 5.0)
    queue.add_at("a", 20.0)
    assert queue.next_due_s() == 5.0
    queue.advance(5.0)
    assert queue.take() == "a"
    queue.done("a")
    queue.advance(100.0)
    assert queue.take() is None


class QueueMachine(RuleBasedStateMachine):
    """Against the model: what must still come out, and what is being worked on."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str] = WorkQueue(BACKOFF)
        self.wanted: set[str] = set()
        self.working: set[str] = set()
        self.appointments: dict[str, float] = {}
        self.now_s = 0.0

    @rule(key=st.sampled_from("abc"))
    def add(self, key):
        self.queue.add(key)
        self.wanted.add(key)

    @rule(key=st.sampled_from("abc"), delay_s=st.floats(0.1, 20))
    def later(self, key, delay_s):
        due_s = self.now_s + delay_s
        self.queue.add_at(key, due_s)
        self.appointments[key] = min(self.appointments.get(key, due_s), due_s)

    @rule(step_s=st.floats(0.1, 15))
    def pass_time(self, step_s):
        self.now_s += step_s
        self.queue.advance(self.now_s)
        for key in [key for key, due_s in self.appointments.items() if due_s <= self.now_s]:
            del self.appointments[key]
            self.wanted.add(key)

    @rule()
    def take(self):
        key = self.queue.take()
        if key is None:
            assert self.wanted <= self.working
            return
        assert key in self.wanted
        assert key not in self.working
        self.wanted.discard(key)
        self.working.add(key)

    @rule()
    def finish(self):
        for key in sorted(self.working):
            self.queue.done(key)
        self.working.clear()

    @invariant()
    def next_appointment_is_right(self):
        assert self.queue.next_due_s() == min(self.appointments.values(), default=None)


QueueMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
