"""The store in memory: for `podyard dev`, the simulation and tests.

It keeps every version of every key until it is compacted, so reads at old revisions, watches from
the past and their expiry are those of etcd. Everything happens between two awaits of one loop:
there is nothing to lock.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator
from operator import attrgetter

from apiserver.store.base import (
    Expired,
    FutureRevision,
    KeyExists,
    Page,
    RevisionMismatch,
    Stored,
    StoreEvent,
    StoreUnavailable,
    ValueTooLarge,
    WatchBatch,
)
from podyard.base import clock

# etcd's default limit of a request, which users of upstream know as the largest object.
MAX_REQUEST_BYTES = 1_572_864
_MAX_BATCH_EVENTS = 1_000

_by_revision = attrgetter("revision")


class _Version:
    """A key's state from `revision` on; `stored` is None while it is deleted."""

    __slots__ = ("revision", "stored")

    def __init__(self, revision: int, stored: Stored | None) -> None:
        self.revision = revision
        self.stored = stored


class _Watch:
    """An open watch: where it stands and how to wake it."""

    __slots__ = ("expired", "position", "prefix", "progress_wanted", "wake")

    def __init__(self, prefix: str, position: int) -> None:
        self.prefix = prefix
        self.position = position
        self.progress_wanted = False
        self.expired = False
        self.wake = asyncio.Event()


class MemoryStore:
    """`Store` in this process's memory. See `apiserver.store.base.Store` for the semantics."""

    def __init__(self) -> None:
        # A fresh etcd is at revision 1, so the first write gets 2 here too.
        self._revision = 1
        self._compact_revision = 0
        self._keys: list[str] = []
        self._versions: dict[str, list[_Version]] = {}
        self._history: list[StoreEvent] = []
        self._watches: set[_Watch] = set()
        self._closed = False

    async def get(self, key: str, *, revision: int = 0) -> tuple[Stored | None, int]:
        await self._turn()
        return self._at(key, self._readable(revision)), self._revision

    async def list(self, prefix: str, *, start_after: str = "", limit: int = 0, revision: int = 0) -> Page:
        await self._turn()
        revision = self._readable(revision)
        low = bisect_left(self._keys, prefix)
        if start_after >= prefix:
            low = max(low, bisect_right(self._keys, start_after))
        items: list[Stored] = []
        for index in range(low, len(self._keys)):
            key = self._keys[index]
            if not key.startswith(prefix):
                break
            stored = self._at(key, revision)
            if stored is not None:
                items.append(stored)
        remaining = max(0, len(items) - limit) if limit else 0
        return Page(items[:limit] if limit else items, revision, remaining > 0, remaining)

    async def create(self, key: str, value: bytes) -> int:
        await self._turn()
        current = self._at(key, self._revision)
        if current is not None:
            raise KeyExists(current)
        self._check_size(key, value)
        return self._write(key, value, None)

    async def update(self, key: str, value: bytes, *, expected_revision: int) -> int:
        assert expected_revision > 0
        await self._turn()
        self._check_size(key, value)
        return self._write(key, value, self._expected(key, expected_revision))

    async def delete(self, key: str, *, expected_revision: int) -> int:
        assert expected_revision > 0
        await self._turn()
        return self._write(key, None, self._expected(key, expected_revision))

    async def watch(
        self, prefix: str, *, start_revision: int = 0, with_previous: bool = True
    ) -> AsyncGenerator[WatchBatch, None]:
        if start_revision and start_revision <= self._compact_revision:
            raise Expired(self._compact_revision)
        watch = _Watch(prefix, start_revision - 1 if start_revision else self._revision)
        self._watches.add(watch)
        try:
            while not self._closed:
                if watch.expired:
                    raise Expired(self._compact_revision)
                batch = self._next_batch(watch, with_previous)
                if batch is not None:
                    yield batch
                    continue
                watch.wake.clear()
                await watch.wake.wait()
            raise StoreUnavailable("the store is closed")
        finally:
            self._watches.discard(watch)

    async def request_progress(self) -> None:
        await self._turn()
        for watch in self._watches:
            watch.progress_wanted = True
            watch.wake.set()

    async def current_revision(self) -> int:
        await self._turn()
        return self._revision

    async def compact(self, revision: int) -> None:
        await self._turn()
        if revision > self._revision:
            raise FutureRevision(f"cannot compact at {revision}, the store is at {self._revision}")
        if revision <= self._compact_revision:
            return
        for watch in self._watches:
            self._settle(watch, revision)
        self._compact_revision = revision
        del self._history[: bisect_right(self._history, revision, key=_by_revision)]
        kept: list[str] = []
        for key in self._keys:
            versions = self._versions[key]
            del versions[: max(0, bisect_right(versions, revision, key=_by_revision) - 1)]
            if versions[0].stored is None and versions[0].revision <= revision:
                del versions[0]
            if versions:
                kept.append(key)
            else:
                del self._versions[key]
        self._keys = kept

    async def close(self) -> None:
        self._closed = True
        for watch in self._watches:
            watch.wake.set()

    async def _turn(self) -> None:
        # A call to a real store always lets others run; the simulation needs the same interleavings.
        await clock.real_sleep(0)
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _readable(self, revision: int) -> int:
        if revision > self._revision:
            raise FutureRevision(f"revision {revision} asked for, the store is at {self._revision}")
        if revision and revision < self._compact_revision:
            raise Expired(self._compact_revision)
        return revision or self._revision

    def _at(self, key: str, revision: int) -> Stored | None:
        versions = self._versions.get(key)
        if not versions:
            return None
        if versions[-1].revision <= revision:
            return versions[-1].stored
        index = bisect_right(versions, revision, key=_by_revision)
        return versions[index - 1].stored if index else None

    def _expected(self, key: str, expected_revision: int) -> Stored:
        current = self._at(key, self._revision)
        if current is None or current.mod_revision != expected_revision:
            raise RevisionMismatch(key, current)
        return current

    @staticmethod
    def _check_size(key: str, value: bytes) -> None:
        if len(key) + len(value) > MAX_REQUEST_BYTES:
            raise ValueTooLarge(f"a write of {len(value)} bytes exceeds {MAX_REQUEST_BYTES}")

    def _write(self, key: str, value: bytes | None, previous: Stored | None) -> int:
        self._revision += 1
        revision = self._revision
        stored = None
        if value is not None:
            create_revision = revision if previous is None else previous.create_revision
            stored = Stored(key, value, create_revision, revision)
        versions = self._versions.get(key)
        if versions is None:
            self._versions[key] = [_Version(revision, stored)]
            insort(self._keys, key)
        else:
            versions.append(_Version(revision, stored))
        self._history.append(
            StoreEvent(key, revision, value, previous, 0 if stored is None else stored.create_revision)
        )
        for watch in self._watches:
            if key.startswith(watch.prefix):
                watch.wake.set()
        return revision

    def _next_batch(self, watch: _Watch, with_previous: bool) -> WatchBatch | None:
        """The next events of a watch, else the progress mark that it owes, else None."""
        events: list[StoreEvent] = []
        index = bisect_right(self._history, watch.position, key=_by_revision)
        while index < len(self._history) and len(events) < _MAX_BATCH_EVENTS:
            event = self._history[index]
            index += 1
            if event.key.startswith(watch.prefix):
                events.append(event if with_previous else _without_previous(event))
        if events:
            watch.position = events[-1].revision
            return WatchBatch(tuple(events), watch.position)
        # Nothing of this prefix lies between: the scan need not be repeated.
        watch.position = max(watch.position, self._revision)
        if watch.progress_wanted:
            watch.progress_wanted = False
            return WatchBatch((), self._revision)
        return None

    def _settle(self, watch: _Watch, revision: int) -> None:
        """Before a compaction: expire a watch that has events of the past still to deliver."""
        low = bisect_right(self._history, watch.position, key=_by_revision)
        high = bisect_right(self._history, revision, key=_by_revision)
        if any(event.key.startswith(watch.prefix) for event in self._history[low:high]):
            watch.expired = True
            watch.wake.set()


def _without_previous(event: StoreEvent) -> StoreEvent:
    return StoreEvent(event.key, event.revision, event.value, None, event.create_revision)
