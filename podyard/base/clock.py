"""The one door to time.

*Cluster time* is what Kubernetes means by time: heartbeats, tolerations, back-offs, ages. It is
real time × a factor + an offset, so that a user may move it for the whole cluster at once.
*Real time* is for TLS, sockets, etcd, the runtime and log durations. On the virtual loop of the
simulation both follow the loop, where waiting takes no time.

The event loop itself stays real, so libraries on it are right; only code that waits through this
module sees cluster time.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from heapq import heapify, heappop, heappush

# A jump forward may make many timers due at once; nothing may wait longer than this for its turn.
_LONGEST_REAL_WAIT_S = 3600.0
_CANCELLED_AT_LEAST = 100


class _Clock:
    """Cluster time of this process and the timers that wait in it.

    At factor 1 it is the real clock plus an offset, so that corrections of the host's clock are
    followed; at any other factor it runs from an anchor on the monotonic clock.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self.waiters: set[_Timers] = set()
        self._offset_s = 0.0
        self._cluster_anchor_s = 0.0
        self._real_anchor_s = 0.0

    def now_s(self) -> float:
        if self.factor == 1.0:
            return real_now_s() + self._offset_s
        return self._cluster_anchor_s + (real_monotonic_s() - self._real_anchor_s) * self.factor

    def move(self, cluster_now_s: float, factor: float) -> None:
        if cluster_now_s < self.now_s() - 1e-3:
            raise ValueError("cluster time never goes back")
        self._cluster_anchor_s = cluster_now_s
        self._real_anchor_s = real_monotonic_s()
        self._offset_s = cluster_now_s - real_now_s()
        self.factor = factor
        for timers in list(self.waiters):
            timers.rearm()


class TimerHandle:
    """A call set by `call_at`; `cancel` is idempotent."""

    __slots__ = ("_args", "_callback", "_timers", "cancelled", "when_s")

    def __init__(
        self, when_s: float, callback: Callable[..., object], args: tuple[object, ...], timers: _Timers
    ) -> None:
        self.when_s = when_s
        self.cancelled = False
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._timers: _Timers | None = timers

    def cancel(self) -> None:
        timers = self._timers
        self._forget()
        if timers is not None:
            timers.note_cancelled()

    def _forget(self) -> None:
        self.cancelled = True
        self._callback, self._args, self._timers = None, (), None

    def run(self) -> None:
        """Calls back, unless cancelled; for the timers only."""
        callback, args = self._callback, self._args
        if callback is not None:
            self._forget()
            callback(*args)


class _Timers:
    """Cluster-time timers of one loop behind a single real timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, TimerHandle]] = []
        self._sequence = itertools.count()
        self._real: asyncio.TimerHandle | None = None
        self._cancelled = 0  # at most so many in the heap

    def __len__(self) -> int:
        """Entries kept, cancelled ones included."""
        return len(self._heap)

    def note_cancelled(self) -> None:
        """One more entry is cancelled: when they are most of the heap, they go.

        A wait of minutes that ends early, a thousand times a second, would pile them up.
        """
        self._cancelled += 1
        if self._cancelled > _CANCELLED_AT_LEAST and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapify(self._heap)
            self._cancelled = 0

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def add(self, handle: TimerHandle) -> None:
        heappush(self._heap, (handle.when_s, next(self._sequence), handle))
        if self._heap[0][2] is handle:
            self.rearm()

    def rearm(self) -> None:
        if self._real is not None:
            self._real.cancel()
            self._real = None
        while self._heap and self._heap[0][2].cancelled:
            heappop(self._heap)
        if not self._heap or self._loop.is_closed():
            return
        ahead_s = self._heap[0][0] - now_s()
        if ahead_s <= 0:
            self._real = self._loop.call_later(0, self._fire)
        elif _CLOCK.factor > 0:
            self._real = self._loop.call_later(min(ahead_s / _CLOCK.factor, _LONGEST_REAL_WAIT_S), self._fire)

    def _fire(self) -> None:
        self._real = None
        now = now_s() + 1e-6
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].cancelled):
            heappop(self._heap)[2].run()
        self.rearm()


_CLOCK = _Clock()
_ATTRIBUTE = "_podyard_cluster_timers"


def _timers() -> _Timers:
    loop = asyncio.get_running_loop()
    timers: _Timers | None = getattr(loop, _ATTRIBUTE, None)
    if timers is None:
        timers = _Timers(loop)
        setattr(loop, _ATTRIBUTE, timers)
        _CLOCK.waiters = {kept for kept in _CLOCK.waiters if not kept.closed} | {timers}
    return timers


def _virtual_now_s() -> float | None:
    """The virtual loop's time, where one runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop.time() if getattr(loop, "is_virtual", False) else None


def now_s() -> float:
    """Cluster time, seconds since the epoch."""
    virtual = _virtual_now_s()
    return _CLOCK.now_s() if virtual is None else virtual


def call_at(when_s: float, callback: Callable[..., object], *args: object) -> TimerHandle:
    """Calls `callback(*args)` on this loop once cluster time has reached `when_s`."""
    timers = _timers()
    handle = TimerHandle(when_s, callback, args, timers)
    timers.add(handle)
    return handle


async def sleep(delay_s: float) -> None:
    """Waits in cluster time."""
    if delay_s <= 0:
        await asyncio.sleep(0)
        return
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    handle = call_at(now_s() + delay_s, _finish, future)
    try:
        await future
    finally:
        handle.cancel()


async def wait(event: asyncio.Event, due_s: float | None = None) -> None:
    """Waits for an event, which is set at the cluster time `due_s` at the latest; None waits for it alone."""
    timer = None if due_s is None else call_at(due_s, event.set)
    try:
        await event.wait()
    finally:
        if timer is not None:
            timer.cancel()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@asynccontextmanager
async def timeout(delay_s: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Bounds a block in cluster time; raises `TimeoutError`. None means no bound."""
    async with asyncio.timeout(None) as scope:
        if delay_s is None:
            yield scope
            return
        handle = call_at(now_s() + delay_s, _expire, scope)
        try:
            yield scope
        finally:
            handle.cancel()


def _expire(scope: asyncio.Timeout) -> None:
    scope.reschedule(asyncio.get_running_loop().time())


def move(cluster_now_s: float, factor: float = 1.0) -> None:
    """Sets cluster time and its speed for this process.

    Args:
        cluster_now_s: the new cluster time, seconds since the epoch.
        factor: cluster seconds for one real second; 0 freezes.

    Raises:
        ValueError: the time lies in the past.
    """
    _CLOCK.move(cluster_now_s, factor)


def real_now_s() -> float:
    """Real time, seconds since the epoch; the loop's time on the virtual loop."""
    virtual = _virtual_now_s()
    return time.time() if virtual is None else virtual


def real_monotonic_s() -> float:
    """Real monotonic seconds, for durations and deadlines."""
    virtual = _virtual_now_s()
    return time.monotonic() if virtual is None else virtual


async def real_sleep(delay_s: float) -> None:
    """Waits in real time."""
    await asyncio.sleep(delay_s)


def real_timeout(delay_s: float | None) -> asyncio.Timeout:
    """Bounds a block in real time; raises `TimeoutError`. None means no bound."""
    return asyncio.timeout(delay_s)
