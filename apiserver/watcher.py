"""One watcher of the watch cache, and the register that finds the watchers of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from apiserver.watchcache_events import Change, Scope, SlowWatcher, WatchEvent, WatchFrame
from podyard.base import clock, ids


class Watcher:
    """An async iterator of frames; close it when done (`async with`).

    It is fed between two awaits by the cache and never waits for its reader: a reader that lets
    more than `queue_events` pile up loses the watcher (`SlowWatcher`).

    Args:
        backlog: events to deliver first: the initial state, or history. Not counted as piled up.
        backlog_revision: the revision that the backlog leads to.
        backlog_in_order: the backlog is history in revision order, not a state in key order.
        end_initial_events: mark the end of the backlog by a bookmark.
        frame_events: most events in one frame.
        bookmark_s: cluster seconds between bookmarks; 0 for none.
        skip_until: changes up to this revision are known to the reader.
    """

    def __init__(
        self,
        *,
        revision: Callable[[], int],
        leave: Callable[[Watcher], None],
        backlog: list[WatchEvent],
        backlog_revision: int,
        backlog_in_order: bool,
        end_initial_events: bool,
        bookmark_s: float,
        queue_events: int,
        frame_events: int,
        skip_until: int,
    ) -> None:
        self._revision = revision
        self._leave = leave
        self._backlog = backlog
        self._backlog_at = 0
        self._backlog_revision = backlog_revision
        self._backlog_in_order = backlog_in_order
        self._end_initial_events = end_initial_events
        self._queue_events = queue_events
        self._frame_events = frame_events
        self._skip_until = skip_until
        self._pending: list[WatchEvent] = []
        self._failure: Exception | None = None
        self._finishing = False
        self._closed = False
        self._reader: asyncio.Future[None] | None = None
        self._bookmark_s = bookmark_s
        self._bookmark_due = False
        self._timer: clock.TimerHandle | None = None
        self._set_timer()

    def push(self, event: WatchEvent, revision: int) -> bool:
        """Takes an event; False when the reader is too slow and the watcher is done for."""
        if revision <= self._skip_until:
            return True
        if len(self._pending) >= self._queue_events:
            self.fail(SlowWatcher(f"{len(self._pending)} events are waiting for a slow watcher"))
            return False
        self._pending.append(event)
        if self._reader is not None:
            self._wake()
        return True

    def fail(self, failure: Exception) -> None:
        """Ends the watcher: what is not delivered yet is dropped, then the reader gets `failure`."""
        self._failure = failure
        self._pending = []
        self._backlog = []
        self._wake()

    def finish(self) -> None:
        """Ends the watcher in good order: events that wait, a last bookmark where wanted, the end."""
        self._finishing = True
        self._wake()

    def close(self) -> None:
        """Leaves the cache; idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._leave(self)
        self._wake()

    async def __aenter__(self) -> Watcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> WatchFrame:
        while True:
            if self._closed:
                raise StopAsyncIteration
            frame = self._next_frame()
            if frame is not None:
                return frame
            if self._failure is not None:
                failure = self._failure
                self.close()
                raise failure
            if self._finishing:
                self.close()
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def _next_frame(self) -> WatchFrame | None:
        if self._failure is not None:
            return None
        if self._backlog_at < len(self._backlog):
            events = self._backlog[self._backlog_at : self._backlog_at + self._frame_events]
            self._backlog_at += len(events)
            if self._backlog_at < len(self._backlog):
                # A part of a state in key order is no point to resume from.
                following = self._backlog[self._backlog_at]
                return WatchFrame(events, following.object.revision - 1 if self._backlog_in_order else 0)
            self._backlog, self._backlog_at = [], 0
            return WatchFrame(events, self._backlog_revision)
        if self._end_initial_events:
            self._end_initial_events = False
            return WatchFrame([], self._backlog_revision, bookmark=True, initial_events_end=True)
        if self._pending:
            events, self._pending = self._pending[: self._frame_events], self._pending[self._frame_events :]
            # One revision may hold several events: what lies before the next one's is complete.
            pending = self._pending
            return WatchFrame(events, pending[0].object.revision - 1 if pending else self._reached())
        if self._finishing and self._bookmark_s and not self._failure:
            self._bookmark_s = 0.0
            self._bookmark_due = True
        if self._bookmark_due:
            self._bookmark_due = False
            self._set_timer()
            return WatchFrame([], self._reached(), bookmark=True)
        return None

    def _reached(self) -> int:
        return max(self._revision(), self._skip_until)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _set_timer(self) -> None:
        if self._bookmark_s:
            # Spread, so that the bookmarks of many watchers do not fall together.
            delay_s = self._bookmark_s * (0.75 + 0.25 * ids.jitter())
            self._timer = clock.call_at(clock.now_s() + delay_s, self._on_bookmark_due)

    def _on_bookmark_due(self) -> None:
        self._bookmark_due = True
        self._wake()


class Register:
    """Finds the watchers of a change without asking each.

    Watchers stand in buckets by what they follow: a whole resource, a namespace, one object, or an
    index value (a kubelet's pods). A change looks only into the buckets that it falls into.
    """

    def __init__(self) -> None:
        self._buckets: dict[str | tuple[str, str, str], dict[tuple[Watcher, Scope], None]] = {}
        self._places: dict[Watcher, list[tuple[str | tuple[str, str, str], tuple[Watcher, Scope]]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def watchers(self) -> list[Watcher]:
        return list(self._places)

    def add(self, watcher: Watcher, scopes: Iterable[Scope]) -> None:
        places = self._places.setdefault(watcher, [])
        for scope in scopes:
            bucket: str | tuple[str, str, str] = scope.prefix or scope.resource
            if scope.index is not None:
                bucket = (scope.resource, *scope.index)
            entry = (watcher, scope)
            self._buckets.setdefault(bucket, {})[entry] = None
            places.append((bucket, entry))

    def remove(self, watcher: Watcher) -> None:
        for bucket, entry in self._places.pop(watcher, []):
            entries = self._buckets[bucket]
            entries.pop(entry, None)
            if not entries:
                del self._buckets[bucket]

    def offer(self, change: Change) -> None:
        """Hands a change to everyone concerned."""
        key, resource, revision = change.key, change.resource, change.revision
        slow: list[Watcher] = []
        namespace = key[: key.rindex("/") + 1]
        for bucket in (resource, namespace, key) if namespace != resource else (resource, key):
            for watcher, scope in self._buckets.get(bucket, ()):
                event = change.event(scope.matches)
                if event is not None and not watcher.push(event, revision):
                    slow.append(watcher)
        for pair in change.index_values:
            for watcher, scope in self._buckets.get((resource, *pair), ()):
                event = change.event(scope.matches) if scope.covers(key) else None
                if event is not None and not watcher.push(event, revision):
                    slow.append(watcher)
        for watcher in slow:
            self.remove(watcher)
