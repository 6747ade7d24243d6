"""The work queue, pure: time and jitter are handed in.

Its four promises, in upstream's words: *fair* (keys come out in the order they came in),
*stingy* (a key that waits is not added twice), *re-entrant* (a key added while it is worked on
comes out again after that, never beside it), and a key that failed waits longer each time.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Generic, TypeVar

from podyard.base.backoff import Backoff

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """Keys to work on.

    Args:
        backoff: for `retry`.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()  # in _ready
        self._working: set[K] = set()
        self._dirty: set[K] = set()  # added while worked on
        self._failures: dict[K, int] = {}
        self._delayed: list[tuple[float, int, K]] = []
        self._due_s: dict[K, float] = {}
        self._sequence = 0

    def __len__(self) -> int:
        """Keys that could be taken now."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Adds a key that has changed."""
        if key in self._waiting:
            return
        if key in self._working:
            self._dirty.add(key)
            return
        self._waiting.add(key)
        self._ready.append(key)

    def add_at(self, key: K, due_s: float) -> None:
        """Adds a key at a later time; an earlier appointment of the key stands."""
        if self._due_s.get(key, float("inf")) <= due_s:
            return
        self._due_s[key] = due_s
        self._sequence += 1
        heappush(self._delayed, (due_s, self._sequence, key))

    def retry(self, key: K, now_s: float, jitter: float) -> float:
        """Adds a key that failed, later each time; answers the delay in seconds."""
        attempt = self._failures.get(key, 0)
        self._failures[key] = attempt + 1
        delay_s = self._backoff.delay_s(attempt, jitter)
        self.add_at(key, now_s + delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Ends a key's series of failures."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def advance(self, now_s: float) -> None:
        """Moves the keys whose time has come."""
        while self._delayed and self._delayed[0][0] <= now_s:
            due_s, _, key = heappop(self._delayed)
            if self._due_s.get(key) == due_s:
                del self._due_s[key]
                self.add(key)

    def next_due_s(self) -> float | None:
        """When the next delayed key comes due."""
        while self._delayed and self._due_s.get(self._delayed[0][2]) != self._delayed[0][0]:
            heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def take(self) -> K | None:
        """The next key, now worked on; None when none waits."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """Ends the work on a key; it comes again if it changed meanwhile."""
        self._working.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)
