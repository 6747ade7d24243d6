"""Random writes, compactions, cut streams, slow and resuming clients: every client ends with the truth.

While no stream is cut, each client must see exactly the model's events. When history is compacted
under a cut stream, what lay between is collapsed, and the client must still see every object go
from state to state, in order, to the state that is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.store.base import Expired, StoreUnavailable, WatchBatch
from apiserver.store.memory import MemoryStore
from apiserver.watchcache import WatchCache
from apiserver.watchcache_events import CachedObject, RevisionTooOld, Scope, SlowWatcher, WatchFrame
from apiserver.watcher import Watcher
from podyard.testing.loop import VirtualLoop

PODS, NODES = "/registry/pods/", "/registry/minions/"


class Thing(CachedObject):
    __slots__ = ()

    @property
    def labels(self) -> Mapping[str, str]:
        found: dict[str, str] = json.loads(self.value)
        return found


class CutStore(MemoryStore):
    """Its watch fails when told to, before it delivers its next batch."""

    failure: Exception | None = None

    async def watch(
        self, prefix: str, *, start_revision: int = 0, with_previous: bool = True
    ) -> AsyncGenerator[WatchBatch, None]:
        async with aclosing(
            super().watch(prefix, start_revision=start_revision, with_previous=with_previous)
        ) as batches:
            async for batch in batches:
                if self.failure is not None:
                    failure, self.failure = self.failure, None
                    raise failure
                yield batch


def web(object_: CachedObject) -> bool:
    return object_.labels["app"] == "web"


def on_node(object_: CachedObject) -> bool:
    return object_.labels["node"] == "n1"


SCOPES: list[list[Scope]] = [
    [Scope(PODS)],
    [Scope(PODS), Scope(NODES)],
    [Scope(PODS, prefix=PODS + "a/")],
    [Scope(PODS, matches=web)],
    [Scope(PODS, matches=on_node, index=("node", "n1"))],
    [Scope(PODS, prefix=PODS + "b/", matches=on_node, index=("node", "n1")), Scope(NODES, matches=web)],
]


class Client:
    """What an informer does: list, watch, resume where it was, list again when that is too old."""

    def __init__(self, cache: WatchCache, scopes: list[Scope]) -> None:
        self.cache = cache
        self.scopes = scopes
        self.state: dict[str, tuple[int, int, bytes]] = {}
        self.seen: list[tuple[str, str, int]] = []
        self.revision = 0
        self.listed_at = 0
        self.lists = 0
        self.watcher: Watcher | None = None

    def list_and_watch(self) -> None:
        self.lists += 1
        self.seen = []
        self.revision = self.listed_at = self.cache.revision
        self.state = {
            object_.key: (object_.revision, object_.create_revision, object_.value)
            for scope in self.scopes
            for object_ in self.cache.select(scope.resource, scope.prefix).objects
            if scope.matches is None or scope.matches(object_)
        }
        self.watcher = self.cache.watch(self.scopes, from_revision=self.revision)

    def stop(self) -> None:
        if self.watcher is not None:
            self.watcher.close()
            self.watcher = None

    async def drain(self, frames: int = 1_000) -> None:
        """Takes some frames of what is there, without waiting for more."""
        if self.watcher is None:
            try:
                self.watcher = self.cache.watch(self.scopes, from_revision=self.revision)
            except RevisionTooOld:
                self.list_and_watch()
        assert self.watcher is not None
        for _ in range(frames):
            frame = await self._next(self.watcher)
            if frame is None:
                return
            for event in frame.events:
                self.see(event.type, event.object)
            assert frame.revision >= self.revision
            self.revision = frame.revision

    async def _next(self, watcher: Watcher) -> WatchFrame | None:
        try:
            return watcher._next_frame() or (await anext(watcher) if watcher._failure else None)
        except (SlowWatcher, RevisionTooOld):
            self.list_and_watch()
            return None

    def see(self, type_: str, object_: CachedObject) -> None:
        key, known = object_.key, self.state.get(object_.key)
        assert not self.seen or object_.revision >= self.seen[-1][2], "out of order"
        assert object_.revision > self.revision, "seen before"
        assert (known is not None) == (type_ != "ADDED"), f"{type_} of {key}, which was {known}"
        assert known is None or object_.revision > known[0]
        assert known is None or object_.create_revision == known[1], "another object of the same name"
        self.seen.append((type_, key, object_.revision))
        if type_ == "DELETED":
            del self.state[key]
        else:
            self.state[key] = (object_.revision, object_.create_revision, object_.value)


class World:
    def __init__(self, ring_events: int, queue_events: int) -> None:
        self.store = CutStore()
        self.cache = WatchCache(
            self.store,
            resources=[PODS, NODES],
            make=Thing,
            ring_events=ring_events,
            queue_events=queue_events,
            frame_events=3,
        )
        self.cache.add_index(PODS, "node", lambda object_: object_.labels["node"])
        self.log: list[tuple[int, str, bytes | None]] = []
        self.cuts = 0

    async def write(self, key: str, app: str, node: str, remove: bool) -> None:
        value = json.dumps({"app": app, "node": node, "n": str(len(self.log))}).encode()
        found, _ = await self.store.get(key)
        if found is None:
            revision = await self.store.create(key, value)
        elif remove:
            revision = await self.store.delete(key, expected_revision=found.mod_revision)
            self.log.append((revision, key, None))
            return
        else:
            revision = await self.store.update(key, value, expected_revision=found.mod_revision)
        self.log.append((revision, key, value))

    def expected(self, client: Client) -> list[tuple[str, str, int]]:
        """The events after the client's listing, straight from the definition."""
        state: dict[str, bytes] = {}
        events: list[tuple[str, str, int]] = []
        for revision, key, value in self.log:
            scope = next((scope for scope in client.scopes if scope.covers(key)), None)
            if scope is None:
                continue
            matches: Callable[[CachedObject], bool] = scope.matches or (lambda _: True)
            now = value is not None and matches(Thing(key, value, 0, 0))
            type_ = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get(
                (key in state, now)
            )
            if now and value is not None:
                state[key] = value
            else:
                state.pop(key, None)
            if type_ and revision > client.listed_at:
                events.append((type_, key, revision))
        return events


WRITE = st.tuples(
    st.just("write"),
    st.sampled_from([PODS + "a/1", PODS + "a/2", PODS + "b/1", PODS + "b/2", NODES + "n1", NODES + "n2"]),
    st.sampled_from(["web", "db"]),
    st.sampled_from(["n1", "n2"]),
    st.booleans(),
)
CLIENTS = st.integers(0, len(SCOPES) - 1)
STEP = st.one_of(
    WRITE,
    WRITE,
    WRITE,
    st.tuples(st.just("drain"), CLIENTS, st.sampled_from([1, 2, 1_000])),
    st.tuples(st.just("stop"), CLIENTS),
    st.tuples(st.just("compact")),
    st.tuples(st.just("let the cache follow")),
)
CUT = st.sampled_from([("cut", "expired"), ("cut", "unavailable")])


async def play(steps: list[tuple[object, ...]], ring_events: int, queue_events: int) -> None:
    world = World(ring_events, queue_events)
    running = asyncio.ensure_future(world.cache.run())
    await world.cache.wait_ready()
    clients = [Client(world.cache, scopes) for scopes in SCOPES]
    for client in clients:
        client.list_and_watch()
    for name, *arguments in steps:
        match name:
            case "write":
                await world.write(*arguments)  # type: ignore[arg-type]
            case "drain":
                await clients[arguments[0]].drain(arguments[1])  # type: ignore[index, arg-type]
            case "stop":
                clients[arguments[0]].stop()  # type: ignore[index]
            case "compact":
                await world.store.compact(await world.store.current_revision())
            case "cut":
                world.cuts += 1
                world.store.failure = Expired(1) if arguments[0] == "expired" else StoreUnavailable("cut")
            case _:
                await world.cache.fresh()
    await world.cache.fresh()
    page = await world.store.list("/registry/")
    for client in clients:
        await client.drain()
        assert client.state == {
            item.key: (item.mod_revision, item.create_revision, item.value)
            for item in page.items
            for scope in client.scopes
            if scope.covers(item.key)
            and (scope.matches is None or scope.matches(Thing(item.key, item.value, 0, 0)))
        }
        if not world.cuts:
            assert client.seen == world.expected(client)
        client.stop()
    assert world.cache.watcher_count == 0
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=40, max_size=120), seed=st.integers(0, 1000))
def test_without_cuts_every_client_sees_exactly_the_events(
    steps: list[tuple[object, ...]], seed: int
) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        runner.run(play(steps, 1_000, 1_000))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(st.one_of(STEP, STEP, STEP, CUT), min_size=40, max_size=120),
    seed=st.integers(0, 1000),
    ring_events=st.sampled_from([2, 5, 1_000]),
    queue_events=st.sampled_from([3, 1_000]),
)
def test_with_cuts_and_small_bounds_every_client_ends_with_the_truth(
    steps: list[tuple[object, ...]], seed: int, ring_events: int, queue_events: int
) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        runner.run(play(steps, ring_events, queue_events))
