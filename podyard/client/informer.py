"""A local copy of one kind, kept current by a watch.

The contract of an informer, as upstream's shared informer: the store holds, of every object, a
state that was current at some moment; it never goes back; every handler sees each object's states
in order, perhaps with some left out; a deletion is always seen. It starts with the whole state
(`sendInitialEvents`), resumes from its last revision when the stream breaks, and starts over on
410: what is not in the new state any more is then reported as deleted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Key, M, Message
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.client.client import Client, WatchBatch

_LOGGER = log.get_logger("informer")
_BACKOFF = Backoff(base_s=0.2, cap_s=10.0)
_GONE_BOUND = 1000
# So young a state need not be asked for again.
_FRESH_S = 1.0

IndexFunction = Callable[[Any], Iterable[str]]
Handler = Callable[[Any, Any], None]


def key_of(obj: Any) -> Key:
    """Namespace and name of any object."""
    return Key(obj.metadata.namespace, obj.metadata.name)


class Informer(Generic[M]):
    """The copy of one kind (or a selection of it).

    Args:
        client: lists and watches.
        kind: message class.
        namespace: empty for all.
        indexes: name -> function from an object to the values under which it is found.
    """

    def __init__(
        self,
        client: Client,
        kind: type[M],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
    ) -> None:
        self.kind = kind
        self.revision = 0
        self._resume = 0  # where the next stream goes on; 0 = it begins with the whole state
        self.synced = asyncio.Event()
        self._stream: asyncio.Timeout | None = None
        self._whole = asyncio.Event()  # the whole state has come since it was last asked for
        self._whole_at_s = 0.0
        self._client = client
        self._selection = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
        }
        self._objects: dict[Key, M] = {}
        self._seen_at_s: dict[Key, float] = {}
        self._gone_at_s: OrderedDict[Key, float] = OrderedDict()
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[Key, M]]] = {name: {} for name in self._index_functions}
        self._handlers: list[Handler] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._key_waiters: dict[Key, list[asyncio.Future[None]]] = {}

    # Reading. Objects are shared and read-only: a writer starts from `copy_of`.

    def get(self, key: Key) -> M | None:
        return self._objects.get(key)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[M]:
        """Every object, by key, so that decisions are repeatable."""
        return iter([self._objects[key] for key in sorted(self._objects)])

    def by_index(self, name: str, value: str) -> list[M]:
        """Objects that an index lists under `value`, by key."""
        found = self._indexes[name].get(value, {})
        return [found[key] for key in sorted(found)]

    def seen_at_s(self, key: Key) -> float | None:
        """Cluster time at which this process saw the object's present state."""
        return self._seen_at_s.get(key)

    def gone_at_s(self, key: Key) -> float | None:
        """Cluster time at which this process saw the object go; the last thousand are known."""
        return self._gone_at_s.get(key)

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Adds an index; what is in the store already is indexed at once."""
        if name in self._index_functions:
            return
        self._index_functions[name] = function
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            for value in function(obj):
                self._indexes[name].setdefault(value, {})[key] = obj

    def on_change(self, handler: Handler) -> None:
        """Calls `handler(old, new)` after each change; old or new is None at birth and death."""
        self._handlers.append(handler)
        for obj in self:
            handler(None, obj)

    async def wait_for(self, revision: int) -> None:
        """Returns once the store reflects `revision`; the caller bounds the wait."""
        if self.revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (revision, future)
        self._waiters.append(entry)
        try:
            await future
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def wait_for_deletion(self, key: Key, uid: str) -> None:
        """Returns once this incarnation is gone or known to be on its way out; the caller bounds the wait."""
        while True:
            obj: Any = self._objects.get(key)
            if obj is None or obj.metadata.uid != uid or obj.metadata.HasField("deletionTimestamp"):
                return
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._key_waiters.setdefault(key, [])
            waiting.append(future)
            try:
                await future
            finally:
                if future in waiting:
                    waiting.remove(future)
                if not waiting and self._key_waiters.get(key) is waiting:
                    del self._key_waiters[key]

    async def refresh(self) -> None:
        """Begins anew with the server's present state; returns once that is here.

        For one that acts after it has only watched: its watch may have lagged or broken meanwhile.
        What has not changed is not reported again. The caller bounds the wait.
        """
        if self.synced.is_set() and clock.real_monotonic_s() - self._whole_at_s < _FRESH_S:
            return
        self._resume = 0
        self._whole.clear()
        if self._stream is not None:
            self._stream.reschedule(asyncio.get_running_loop().time())
        await self._whole.wait()

    # Following.

    async def run(self) -> None:
        """Follows for ever; ends by cancellation only."""
        failures = 0
        while True:
            before = self.revision
            try:
                if await self._follow_until_refresh():
                    continue
                failures += 1
            except errors.Expired:
                # Resume is impossible: the next stream begins with the whole state.
                self._resume = 0
                failures += 1
            except ApiError as error:
                failures += 1
                level = _LOGGER.debug if failures < 3 else _LOGGER.warning
                level("watch broke", kind=self.kind.DESCRIPTOR.name, error=error.message, failures=failures)
            # A stream that got somewhere has ended the series of failures before it.
            if self.revision > before:
                failures = min(failures, 1)
            await clock.real_sleep(_BACKOFF.delay_s(failures - 1, ids.jitter()))

    async def _follow_until_refresh(self) -> bool:
        """Follows one stream; answers whether `refresh` ended it."""
        try:
            async with clock.real_timeout(None) as stream:
                self._stream = stream
                await self._follow()
        except TimeoutError:
            if not stream.expired():
                raise
            return True
        finally:
            self._stream = None
        return False

    async def _follow(self) -> None:
        initial = self._resume == 0
        stale = set(self._objects) if initial else set()
        batches = self._client.watch(
            self.kind,
            **self._selection,
            resource_version="" if initial else str(self._resume),
            send_initial_events=initial,
        )
        try:
            async for batch in batches:
                self._apply(batch, stale if initial else None)
                if initial and batch.synced:
                    for key in sorted(stale):
                        self._put(key, None)
                    initial = False
                    self._whole_at_s = clock.real_monotonic_s()
                    self._whole.set()
                if not initial:
                    self._advance(int(batch.resource_version or 0))
                    self.synced.set()
        finally:
            await batches.aclose()  # type: ignore[attr-defined]

    def _apply(self, batch: WatchBatch[M], stale: set[Key] | None) -> None:
        for event in batch.events:
            if event.type == "BOOKMARK":
                continue
            key = key_of(event.object)
            if stale is not None:
                stale.discard(key)
            self._put(key, None if event.type == "DELETED" else event.object)

    def _put(self, key: Key, obj: M | None) -> None:
        old = self._objects.get(key)
        if old is None and obj is None:
            return
        if old is not None and obj is not None and _revision(old) == _revision(obj):
            return  # seen already: an initial state repeats what is known
        for name, function in self._index_functions.items():
            self._reindex(self._indexes[name], function, key, old, obj)
        if obj is None:
            del self._objects[key]
            self._seen_at_s.pop(key, None)
            self._gone_at_s[key] = clock.now_s()
            if len(self._gone_at_s) > _GONE_BOUND:
                self._gone_at_s.popitem(last=False)
        else:
            self._gone_at_s.pop(key, None)
            self._objects[key] = obj
            self._seen_at_s[key] = clock.now_s()
        for handler in self._handlers:
            handler(old, obj)
        for future in self._key_waiters.get(key, ()):
            if not future.done():
                future.set_result(None)

    def _reindex(
        self, index: dict[str, dict[Key, M]], function: IndexFunction, key: Key, old: M | None, new: M | None
    ) -> None:
        for value in function(old) if old is not None else ():
            bucket = index.get(value, {})
            bucket.pop(key, None)
            if not bucket:
                index.pop(value, None)
        for value in function(new) if new is not None else ():
            index.setdefault(value, {})[key] = new  # type: ignore[assignment]

    def _advance(self, revision: int) -> None:
        self._resume = max(self._resume, revision)
        if revision <= self.revision:
            return
        self.revision = revision
        for entry in [entry for entry in self._waiters if entry[0] <= revision]:
            self._waiters.remove(entry)
            if not entry[1].done():
                entry[1].set_result(None)


def _revision(obj: Message) -> str:
    return str(obj.metadata.resourceVersion)  # type: ignore[attr-defined]


class InformerSet:
    """The informers of one process, one for each kind, shared by its controllers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._informers: dict[type[Message], Informer[Any]] = {}

    def of(self, kind: type[M]) -> Informer[M]:
        """The informer of a kind, made at first use; all must be made before `run`."""
        if kind not in self._informers:
            self._informers[kind] = Informer(self._client, kind)
        return self._informers[kind]

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Those made so far."""
        return iter(self._informers.values())

    @property
    def synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self._informers.values())

    async def wait_synced(self) -> None:
        for informer in self._informers.values():
            await informer.synced.wait()

    async def refresh(self) -> None:
        """As `Informer.refresh`, all of them side by side."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.refresh(), name="refresh")

    async def run(self) -> None:
        """Runs all of them; ends by cancellation only."""
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                group.create_task(informer.run(), name=f"informer {kind.DESCRIPTOR.name}")
