"""The watch cache: every object of every kind, followed over one watch of the store.

All kinds are cached in one total order. Reads and watches are answered from here; only writes,
old revisions and the question "which revision is the store at?" go to the store.

It starts in the past and catches up over the watch, so that clients of a server that ended resume at
its successor where they were. It never skips: when history has been compacted away under it, it lists
anew and hands the difference to its watchers as changes in revision order, so that each of them sees
every object go from the state it knew to the state that is. Between two awaits of the loop nothing
else runs, so applying a batch and handing it out is one step that no reader sees half of.

Upstream counterpart: k8s.io/apiserver/pkg/storage/cacher, one a kind; here there is one for all.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable
from contextlib import aclosing

from apiserver.store.base import Expired, Store, Stored, StoreError, StoreEvent
from apiserver.watchcache_events import (
    ADDED,
    CachedObject,
    CacheNotReady,
    Change,
    Listing,
    MakeObject,
    RevisionTooLarge,
    RevisionTooOld,
    Scope,
    WatchEvent,
)
from apiserver.watchcache_tables import Rings, Table
from apiserver.watcher import Register, Watcher
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background

_logger = log.get_logger("watchcache")

# How long a read waits for the cache. Source: blockTimeout of k8s.io/apiserver cacher/watch_cache.go.
FRESH_TIMEOUT_S = 3.0
BOOKMARK_S = 60.0

_LIST_PAGE = 1_000
_MAX_FOLDERS = 50_000
# A few minutes of a busy cluster; the store's compaction usually leaves less.
_HISTORY_REVISIONS = 5_000
_RELIST = Backoff(base_s=0.05, cap_s=2.0)
# The event of a write is usually here by now; only then is the store asked where the stream is.
_PROGRESS_AFTER_S = 0.005
_PROGRESS_PERIOD_S = 0.1


class WatchCache:
    """All objects below `root` of the store.

    Args:
        resources: key prefixes of the resources, such as `/registry/pods/`; other keys are ignored.
        make: makes a `CachedObject` of (key, stored bytes, create revision, revision).
        ring_events: changes remembered of each resource for watches from the past.
        ring_bytes: bound of all that history, in stored bytes.
        history_revisions: how far back the first listing goes, for watches from before this process.
        queue_events: events that may wait for one watcher.
        frame_events: most events handed to a watcher at once.
    """

    def __init__(
        self,
        store: Store,
        *,
        resources: Iterable[str],
        make: MakeObject = CachedObject,
        root: str = "/registry/",
        ring_events: int = 10_000,
        ring_bytes: int = 32 << 20,
        history_revisions: int = _HISTORY_REVISIONS,
        queue_events: int = 10_000,
        frame_events: int = 500,
        bookmark_s: float = BOOKMARK_S,
    ) -> None:
        self._store = store
        self._make = make
        self._root = root
        self._tables = {resource: Table(resource) for resource in resources}
        self._rings = Rings(self._tables, ring_events=ring_events, ring_bytes=ring_bytes)
        self._history_revisions = history_revisions
        self._register = Register()
        self._queue_events = queue_events
        self._frame_events = frame_events
        self._bookmark_s = bookmark_s
        self._order = itertools.count()
        self._revision = 0
        self._ready = asyncio.Event()
        self._ready_at = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._progress_asked_s = 0.0
        # Which resource the keys directly below a folder belong to.
        self._folders: dict[str, str | None] = {}

    @property
    def revision(self) -> int:
        """Everything up to it is in the cache; 0 before the first listing."""
        return self._revision

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    @property
    def watcher_count(self) -> int:
        return len(self._register)

    def add_index(self, resource: str, name: str, value_of: Callable[[CachedObject], str | None]) -> None:
        """Keeps the objects of a resource by a value of theirs, for `select_index` and `Scope.index`."""
        self._tables[resource].add_index(name, value_of)

    async def run(self) -> None:
        """Follows the store for ever. Cancellation: safe; watchers then see nothing new."""
        async with Background() as background:
            background.start(self._ask_until_ready(), name="watch cache catches up")
            await self._run()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                # History that was compacted away in the midst of catching up is not worth another try.
                if failures or self._ready.is_set():
                    await self._list_all()
                else:
                    await self._list_past()
                failures = 0
                await self._follow()
            except Expired as error:
                _logger.warning("watch cache lists anew", revision=self._revision, error=str(error))
            except StoreError as error:
                _logger.warning("watch cache lost its store", revision=self._revision, error=str(error))
            await clock.real_sleep(_RELIST.delay_s(failures, ids.jitter()))
            failures += 1

    # Reading.

    async def wait_ready(self, *, timeout_s: float = FRESH_TIMEOUT_S) -> None:
        """Waits for the first listing.

        Raises:
            CacheNotReady: not in time.
        """
        if self._ready.is_set():
            return
        try:
            async with clock.real_timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise CacheNotReady("the watch cache has not been filled yet") from None

    async def fresh(self, *, timeout_s: float = FRESH_TIMEOUT_S) -> int:
        """Waits until the cache shows everything that was acknowledged before this call.

        Returns:
            The revision that the store was at.

        Raises:
            RevisionTooLarge: the cache did not get there in time.
            StoreUnavailable: the store does not tell its revision.
        """
        revision = await self._store.current_revision()
        await self.wait_until(revision, timeout_s=timeout_s)
        return revision

    async def wait_until(self, revision: int, *, timeout_s: float = FRESH_TIMEOUT_S) -> None:
        """Waits until the cache has reached a revision.

        Raises:
            RevisionTooLarge: not in time.
        """
        if self._revision >= revision and self._ready.is_set():
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (revision, next(self._order), reached))
        end_s = clock.real_monotonic_s() + timeout_s
        pause_s = min(_PROGRESS_AFTER_S, timeout_s)
        while True:
            try:
                async with clock.real_timeout(pause_s):
                    await asyncio.shield(reached)
                    return
            except TimeoutError:
                if reached.done():
                    return
            left_s = end_s - clock.real_monotonic_s()
            if left_s <= 0:
                reached.cancel()
                raise RevisionTooLarge(revision, self._revision)
            pause_s = min(_PROGRESS_PERIOD_S, left_s)
            await self._ask_progress()

    def get(self, key: str) -> CachedObject | None:
        """The object that the cache holds under a key."""
        table = self._table_of(key)
        return None if table is None else table.objects.get(key)

    def select(self, resource: str, prefix: str = "", *, start_after: str = "", limit: int = 0) -> Listing:
        """The objects of a resource (of a namespace's prefix) in key order, as of `revision`."""
        found = self._tables[resource].select(prefix, start_after)
        if limit and len(found) > limit:
            return Listing(found[:limit], self._revision, True, len(found) - limit)
        return Listing(found, self._revision)

    def select_index(self, resource: str, index: str, value: str) -> Listing:
        """The objects that have a value in an index, in key order."""
        return Listing(self._tables[resource].indexes[index].objects(value), self._revision)

    async def list_at(self, prefix: str, revision: int, *, start_after: str = "", limit: int = 0) -> Listing:
        """Objects as they were at an old revision, from the store (exact lists, continue tokens).

        Raises:
            Expired, FutureRevision, StoreUnavailable: as `Store.list`.
        """
        page = await self._store.list(prefix, start_after=start_after, limit=limit, revision=revision)
        objects = [self.object_of(stored) for stored in page.items]
        return Listing(objects, page.revision, page.more, page.remaining)

    def object_of(self, stored: Stored) -> CachedObject:
        """The object of a stored state: the cache's own with all that hangs on it, where it has it."""
        cached = self.get(stored.key)
        if cached is not None and cached.revision == stored.mod_revision:
            return cached
        return self._make(stored.key, stored.value, stored.create_revision, stored.mod_revision)

    # Watching.

    def watch(
        self,
        scopes: Iterable[Scope],
        *,
        from_revision: int | None = None,
        initial_events: bool = False,
        end_initial_events: bool = False,
        bookmarks: bool = False,
    ) -> Watcher:
        """Registers a watcher at once; what changes from now on reaches it. Close it.

        Args:
            scopes: what to follow; of one resource, scopes that do not overlap.
            from_revision: deliver the changes after it; None for those from now on.
            initial_events: first deliver the present state as ADDED events in key order; the
                revision is then ignored (wait for it before, with `wait_until`).
            end_initial_events: and a bookmark after them.
            bookmarks: send one about every minute, and at the end.

        Raises:
            RevisionTooOld: history after `from_revision` is not complete any more.
        """
        scopes = list(scopes)
        backlog: list[WatchEvent] = []
        if initial_events:
            for scope in scopes:
                backlog.extend(WatchEvent(ADDED, object_) for object_ in self._present(scope))
        elif from_revision is not None and from_revision < self._revision:
            backlog = self._replay(scopes, from_revision)
        elif from_revision is None:
            from_revision = self._revision
        watcher = Watcher(
            revision=lambda: self._revision,
            leave=self._register.remove,
            backlog=backlog,
            backlog_revision=self._revision,
            backlog_in_order=not initial_events,
            end_initial_events=end_initial_events,
            bookmark_s=self._bookmark_s if bookmarks else 0.0,
            queue_events=self._queue_events,
            frame_events=self._frame_events,
            skip_until=max(self._revision, 0 if initial_events else from_revision or 0),
        )
        self._register.add(watcher, scopes)
        return watcher

    def finish_watchers(self) -> None:
        """Ends all watchers in good order, for the end of the process."""
        for watcher in self._register.watchers:
            watcher.finish()

    def _present(self, scope: Scope) -> list[CachedObject]:
        table = self._tables[scope.resource]
        if scope.index is not None:
            name, value = scope.index
            found = [object_ for object_ in table.indexes[name].objects(value) if scope.covers(object_.key)]
        else:
            found = table.select(scope.prefix)
        matches = scope.matches
        return found if matches is None else [object_ for object_ in found if matches(object_)]

    def _replay(self, scopes: list[Scope], revision: int) -> list[WatchEvent]:
        resources = {scope.resource for scope in scopes}
        floor = self._rings.floor(resources)
        if revision < floor:
            raise RevisionTooOld(revision, floor)
        events: list[WatchEvent] = []
        for change in self._rings.after(resources, revision):
            for scope in scopes:
                if scope.resource == change.resource and scope.covers(change.key):
                    event = change.event(scope.matches)
                    if event is not None:
                        events.append(event)
        return events

    # Following the store.

    async def _follow(self) -> None:
        watch = self._store.watch(self._root, start_revision=self._revision + 1, with_previous=False)
        async with aclosing(watch) as batches:
            async for batch in batches:
                for event in batch.events:
                    self._take(event)
                self._reach(batch.revision)

    def _take(self, event: StoreEvent) -> None:
        table = self._table_of(event.key)
        if table is None:
            return
        object_ = None
        if event.value is not None:
            object_ = self._make(event.key, event.value, event.create_revision, event.revision)
        self._apply(table, event.key, event.revision, object_)

    def _apply(self, table: Table, key: str, revision: int, object_: CachedObject | None) -> None:
        previous = table.objects.get(key)
        if object_ is None and previous is None:
            return
        change = Change(next(self._order), table.resource, key, revision, object_, previous)
        table.apply(change)
        self._rings.append(change)
        self._register.offer(change)

    def _reach(self, revision: int) -> None:
        """Everything up to `revision` is applied: wake whoever waited for it."""
        self._revision = max(self._revision, revision)
        waiting = self._waiting
        while waiting and (waiting[0][0] <= self._revision or waiting[0][2].done()):
            reached = heapq.heappop(waiting)[2]
            if not reached.done():
                reached.set_result(None)
        if self._revision >= self._ready_at:
            self._ready.set()

    async def _ask_until_ready(self) -> None:
        """The last revision may be a change outside `root`: then only a progress mark tells the end."""
        while not self._ready.is_set():
            await clock.real_sleep(_PROGRESS_PERIOD_S)
            await self._ask_progress()

    async def _list_past(self) -> None:
        """Loads the state of some time ago, whose changes until now the watch then brings.

        Raises:
            Expired: it was compacted away in the meantime.
        """
        now = await self._store.current_revision()
        past = max(now - self._history_revisions, 1)
        try:
            items, past = await self._items(past)
        except Expired:
            # Not every store says where history begins: etcd does not.
            items, past = await self._items(await self._oldest(past, now))
        self._load(items)
        self._rings.clear(past)
        self._revision, self._ready_at = 0, now
        self._reach(past)

    async def _oldest(self, gone: int, kept: int) -> int:
        """The first revision that the store still knows, between one that is gone and one that is kept."""
        while kept - gone > 1:
            middle = (gone + kept) // 2
            try:
                await self._store.get(self._root, revision=middle)
                kept = middle
            except Expired:
                gone = middle
        return kept

    async def _items(self, revision: int) -> tuple[list[Stored], int]:
        """Everything as of a revision (0: now), and which that was."""
        items: list[Stored] = []
        more = True
        while more:
            start_after = items[-1].key if items else ""
            page = await self._store.list(
                self._root, start_after=start_after, limit=_LIST_PAGE, revision=revision
            )
            items.extend(page.items)
            revision, more = page.revision, page.more
        return items, revision

    async def _list_all(self) -> None:
        """Lists everything and becomes it; watchers get the difference."""
        items, revision = await self._items(0)
        if self._revision > revision:
            self._forget(f"the store went back from revision {self._revision} to {revision}")
        if self._ready.is_set():
            self._become(items, revision)
        else:
            self._load(items)
        # Changes between the lost position and the listing are collapsed: whoever stands there lists anew.
        self._rings.clear(revision)
        self._ready_at = revision
        self._reach(revision)

    def _load(self, items: list[Stored]) -> None:
        objects: dict[str, list[CachedObject]] = {resource: [] for resource in self._tables}
        for item in items:
            table = self._table_of(item.key)
            if table is not None:
                objects[table.resource].append(self.object_of(item))
        for resource, table in self._tables.items():
            table.load(objects[resource])

    def _become(self, items: list[Stored], revision: int) -> None:
        """Applies the difference between what is cached and a listing, in revision order."""
        steps: list[tuple[int, bool, str, Stored | None]] = []
        found = {item.key: item for item in items}
        for table in self._tables.values():
            steps.extend((revision, True, key, None) for key in table.objects if key not in found)
        for item in items:
            table_of = self._table_of(item.key)
            if table_of is None:
                continue
            known = table_of.objects.get(item.key)
            if known is None:
                steps.append((item.mod_revision, True, item.key, item))
            elif known.revision != item.mod_revision:
                if known.create_revision != item.create_revision:
                    # Another object of the same name: the one that is known has gone by now.
                    steps.append((item.create_revision - 1, False, item.key, None))
                steps.append((item.mod_revision, True, item.key, item))
        for at_revision, _, key, stored in sorted(steps, key=lambda step: step[:3]):
            table_of = self._table_of(key)
            assert table_of is not None
            self._apply(table_of, key, at_revision, None if stored is None else self.object_of(stored))

    def drop_history(self, revision: int) -> None:
        """Forgets the changes up to a revision; a watch from before then has to list anew."""
        self._rings.drop_until(revision)

    def _forget(self, reason: str) -> None:
        """The store is another one (restored from a backup): nothing that was known still counts."""
        _logger.error("watch cache starts anew", reason=reason)
        for watcher in self._register.watchers:
            watcher.fail(RevisionTooOld(self._revision, self._revision))
            self._register.remove(watcher)
        self._revision = 0
        self._ready.clear()

    async def _ask_progress(self) -> None:
        now_s = clock.real_monotonic_s()
        if now_s - self._progress_asked_s < _PROGRESS_PERIOD_S / 2:
            return
        self._progress_asked_s = now_s
        try:
            await self._store.request_progress()
        except StoreError:
            pass  # The deadline of whoever waits decides.

    def _table_of(self, key: str) -> Table | None:
        folder = key[: key.rindex("/") + 1]
        if folder not in self._folders:
            if len(self._folders) > _MAX_FOLDERS:
                self._folders.clear()
            # A namespace's folder or the resource itself.
            parent = folder[: folder.rindex("/", 0, -1) + 1]
            self._folders[folder] = next((known for known in (folder, parent) if known in self._tables), None)
        resource = self._folders[folder]
        return None if resource is None else self._tables[resource]
