"""Pods that wait for a node. Pure: time is handed in.

Three places, as upstream's queue: *active* (to be tried now, by priority, then by age), *backoff*
(tried lately, waits 1 s doubling to 10 s) and *unschedulable* (waits until something changes that
may help, at the latest five minutes). A change during a pod's own attempt counts for it, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from heapq import heappop, heappush

from podyard.api.types import Key, Pod
from podyard.base.backoff import Backoff
from scheduler.pods import Subject, subject_of

_BACKOFF = Backoff(base_s=1.0, cap_s=10.0, spread=0.0)
# Upstream: the longest time in the unschedulable set.
_FLUSH_S = 300.0

Hint = Callable[["Waiting"], bool]


@dataclass(slots=True)
class Waiting:
    """A pod in the queue.

    Attributes:
        attempts: how often it was tried.
        failed: names of the plugins that refused it last time.
    """

    pod: Pod
    added_at_s: float
    attempts: int = 0
    tried_at_s: float = 0.0
    failed: frozenset[str] = frozenset()
    _subject: Subject | None = None

    @property
    def subject(self) -> Subject:
        """The pod with its facts, read when they are first asked for."""
        if self._subject is None:
            self._subject = subject_of(self.pod)
        return self._subject

    def update(self, pod: Pod) -> bool:
        """Takes a newer state; answers whether it may be decided about differently."""
        old, self.pod = self.pod, pod
        if old.spec == pod.spec and old.metadata.labels == pod.metadata.labels:
            return False
        self._subject = None
        return True

    @property
    def key(self) -> Key:
        return Key(self.pod.metadata.namespace, self.pod.metadata.name)

    def backoff_ends_s(self) -> float:
        return self.tried_at_s + _BACKOFF.delay_s(max(self.attempts - 1, 0))


class SchedulingQueue:
    """See the module."""

    def __init__(self) -> None:
        self._pods: dict[str, Waiting] = {}  # by uid, wherever it waits
        self._active: list[tuple[int, float, int, str]] = []
        self._in_active: set[str] = set()
        self._backoff: list[tuple[float, int, str]] = []
        self._in_backoff: set[str] = set()
        self._unschedulable: dict[str, None] = {}  # in the order in which they came
        self._refused_by: Counter[str] = Counter()  # plugin -> how many of those it refused
        self._in_flight: set[str] = set()
        self._moved_in_flight: set[str] = set()
        self._sequence = 0

    def __len__(self) -> int:
        """Pods that could be tried now."""
        return len(self._in_active)

    def counts(self) -> dict[str, int]:
        """How many wait in each place."""
        return {
            "active": len(self._in_active),
            "backoff": len(self._in_backoff),
            "unschedulable": len(self._unschedulable),
        }

    def add(self, pod: Pod, now_s: float) -> None:
        """A new pod, or a changed one: a change of a pod that failed gives it another try."""
        uid = pod.metadata.uid
        known = self._pods.get(uid)
        if known is None:
            self._pods[uid] = Waiting(pod, now_s)
            self._activate(uid)
            return
        if known.update(pod):
            self._move(uid, now_s)

    def remove(self, uid: str) -> None:
        """The pod is gone or bound."""
        self._leave_unschedulable(uid)
        self._pods.pop(uid, None)
        self._in_active.discard(uid)
        self._in_backoff.discard(uid)
        self._in_flight.discard(uid)
        self._moved_in_flight.discard(uid)

    def take(self, now_s: float) -> Waiting | None:
        """The next pod to try; it is in flight until `done` or `failed`."""
        while self._active:
            _, _, _, uid = heappop(self._active)
            if uid not in self._in_active:
                continue
            self._in_active.discard(uid)
            waiting = self._pods[uid]
            waiting.attempts += 1
            waiting.tried_at_s = now_s
            self._in_flight.add(uid)
            return waiting
        return None

    def failed(self, uid: str, now_s: float, failed: frozenset[str], *, error: bool = False) -> None:
        """The attempt found no node.

        Args:
            failed: plugins that refused; their events will wake the pod.
            error: it did not fail for lack of a node (binding failed, server away): try again
                after the back-off, whatever happens.
        """
        self._in_flight.discard(uid)
        moved = uid in self._moved_in_flight
        self._moved_in_flight.discard(uid)
        waiting = self._pods.get(uid)
        if waiting is None:
            return
        waiting.failed = failed
        if error or moved:
            self._back_off(uid)
        else:
            self._unschedulable[uid] = None
            self._refused_by.update(failed or ("",))

    def wake(self, plugins: Collection[str], now_s: float, helps: Hint | None = None) -> None:
        """Something changed: the pods that it may help are tried again, after their back-off.

        Args:
            plugins: it may help pods that one of these refused; "" stands for those that none did.
            helps: whether it may help one of those.
        """
        if any(name in self._refused_by for name in plugins):
            refused = [self._pods[uid] for uid in self._unschedulable]
            wanted = [waiting for waiting in refused if _any_of(waiting.failed or ("",), plugins)]
            for waiting in wanted:
                if helps is None or helps(waiting):
                    self._move(waiting.pod.metadata.uid, now_s)
        # What happens while a pod is being tried was perhaps not seen by that attempt.
        self._moved_in_flight.update(self._in_flight)

    def advance(self, now_s: float) -> None:
        """Moves the pods whose back-off or longest wait is over."""
        while self._backoff and self._backoff[0][0] <= now_s:
            _, _, uid = heappop(self._backoff)
            if uid in self._in_backoff:
                self._in_backoff.discard(uid)
                self._activate(uid)
        for uid in [uid for uid in self._unschedulable if self._pods[uid].tried_at_s + _FLUSH_S <= now_s]:
            self._move(uid, now_s)

    def next_due_s(self) -> float | None:
        """When `advance` has something to do."""
        while self._backoff and self._backoff[0][2] not in self._in_backoff:
            heappop(self._backoff)
        times = [self._backoff[0][0]] if self._backoff else []
        times += [self._pods[uid].tried_at_s + _FLUSH_S for uid in self._unschedulable]
        return min(times, default=None)

    def _move(self, uid: str, now_s: float) -> None:
        if uid not in self._unschedulable:
            if uid in self._in_flight:
                self._moved_in_flight.add(uid)
            return
        self._leave_unschedulable(uid)
        if self._pods[uid].backoff_ends_s() > now_s:
            self._back_off(uid)
        else:
            self._activate(uid)

    def _leave_unschedulable(self, uid: str) -> None:
        if uid not in self._unschedulable:
            return
        del self._unschedulable[uid]
        for name in self._pods[uid].failed or ("",):
            self._refused_by[name] -= 1
            if not self._refused_by[name]:
                del self._refused_by[name]

    def _back_off(self, uid: str) -> None:
        self._in_backoff.add(uid)
        self._sequence += 1
        heappush(self._backoff, (self._pods[uid].backoff_ends_s(), self._sequence, uid))

    def _activate(self, uid: str) -> None:
        waiting = self._pods[uid]
        self._in_active.add(uid)
        self._sequence += 1
        heappush(self._active, (-waiting.pod.spec.priority, waiting.added_at_s, self._sequence, uid))


def _any_of(names: Collection[str], plugins: Collection[str]) -> bool:
    return any(name in plugins for name in names)
