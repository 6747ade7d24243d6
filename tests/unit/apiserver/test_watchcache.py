"""The watch cache over the memory store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from apiserver.store.base import Expired, Page, StoreUnavailable, WatchBatch
from apiserver.store.memory import MemoryStore
from apiserver.watchcache import WatchCache
from apiserver.watchcache_events import (
    CachedObject,
    CacheNotReady,
    RevisionTooLarge,
    RevisionTooOld,
    Scope,
    SlowWatcher,
    WatchFrame,
)
from apiserver.watcher import Watcher
from podyard.base import clock

PODS, NODES = "/registry/pods/", "/registry/minions/"

pytestmark = pytest.mark.virtual


class Thing(CachedObject):
    """A JSON value: its labels are itself."""

    __slots__ = ()

    @property
    def labels(self) -> Mapping[str, str]:
        found: dict[str, str] = json.loads(self.value)
        return found


class CutStore(MemoryStore):
    """A memory store whose watches can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.watches_opened = 0

    async def cut(self, failure: Exception) -> None:
        """Fails the open watch; what it had still to deliver is not delivered."""
        self.failure = failure
        await self.request_progress()

    async def watch(
        self, prefix: str, *, start_revision: int = 0, with_previous: bool = True
    ) -> AsyncGenerator[WatchBatch, None]:
        self.watches_opened += 1
        async with aclosing(
            super().watch(prefix, start_revision=start_revision, with_previous=with_previous)
        ) as batches:
            async for batch in batches:
                if self.failure is not None:
                    failure, self.failure = self.failure, None
                    raise failure
                yield batch


class Bench:
    """A store with a running cache on it."""

    def __init__(self, store: CutStore, **options: int) -> None:
        self.store = store
        self.cache = WatchCache(store, resources=[PODS, NODES], make=Thing, **options)  # type: ignore[arg-type]
        self.cache.add_index(PODS, "node", lambda object_: object_.labels.get("node"))

    async def put(self, key: str, **labels: str) -> int:
        value = json.dumps(labels).encode()
        found, _ = await self.store.get(key)
        if found is None:
            return await self.store.create(key, value)
        return await self.store.update(key, value, expected_revision=found.mod_revision)

    async def delete(self, key: str) -> int:
        found, _ = await self.store.get(key)
        assert found is not None
        return await self.store.delete(key, expected_revision=found.mod_revision)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running(Bench(CutStore())) as opened:
        yield opened


class running:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Bench:
        self.task = asyncio.create_task(self.bench.cache.run())
        await self.bench.cache.wait_ready()
        return self.bench

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait({self.task})


def brief(frames: list[WatchFrame]) -> list[tuple[str, str, int]]:
    return [
        (event.type, event.object.key.rsplit("/", 1)[1], event.object.revision)
        for frame in frames
        for event in frame.events
    ]


async def take(watcher: Watcher, events: int) -> list[WatchFrame]:
    """Frames until so many events have come."""
    frames: list[WatchFrame] = []
    async with clock.real_timeout(10):
        while sum(len(frame.events) for frame in frames) < events:
            frames.append(await anext(watcher))
    return frames


async def test_lists_what_the_store_holds_in_key_order(bench: Bench) -> None:
    for name in ("b/2", "a/1", "b/1"):
        await bench.put(PODS + name)
    await bench.put(NODES + "n")
    await bench.put("/registry/unknown/x")
    revision = await bench.cache.fresh()
    listing = bench.cache.select(PODS)
    assert [object_.key for object_ in listing.objects] == [PODS + name for name in ("a/1", "b/1", "b/2")]
    assert listing.revision == revision
    assert [object_.key for object_ in bench.cache.select(PODS, PODS + "b/").objects] == [
        PODS + "b/1",
        PODS + "b/2",
    ]
    page = bench.cache.select(PODS, limit=1, start_after=PODS + "a/1")
    assert [object_.key for object_ in page.objects] == [PODS + "b/1"]
    assert (page.more, page.remaining) == (True, 1)
    assert [object_.key for object_ in bench.cache.select(NODES).objects] == [NODES + "n"]
    assert [object_.key for object_ in bench.cache.select(PODS, PODS + "b/2").objects] == [PODS + "b/2"]
    assert bench.cache.select(PODS, PODS + "c/3").objects == []


async def test_a_fresh_read_sees_acknowledged_writes(bench: Bench) -> None:
    for index in range(20):
        revision = await bench.put(PODS + "a/1", n=str(index))
        await bench.cache.fresh()
        found = bench.cache.get(PODS + "a/1")
        assert found is not None
        assert found.revision == revision


async def test_fresh_though_the_revision_moved_outside_the_root(bench: Bench) -> None:
    await bench.store.create("/elsewhere", b"")
    assert await bench.cache.fresh() == bench.cache.revision


async def test_waiting_for_a_revision_that_does_not_come(bench: Bench) -> None:
    began = clock.real_monotonic_s()
    with pytest.raises(RevisionTooLarge, match="Too large resource version: 1000, current: 1"):
        await bench.cache.wait_until(1000)
    assert clock.real_monotonic_s() - began == pytest.approx(3.0, abs=0.2)


async def test_not_ready_without_a_listing() -> None:
    cache = WatchCache(MemoryStore(), resources=[PODS])
    with pytest.raises(CacheNotReady):
        await cache.wait_ready()


async def test_watch_from_now(bench: Bench) -> None:
    await bench.put(PODS + "a/old")
    await bench.cache.fresh()
    async with bench.cache.watch([Scope(PODS)]) as watcher:
        first = await bench.put(PODS + "a/1")
        second = await bench.put(PODS + "a/1", x="y")
        third = await bench.delete(PODS + "a/1")
        frames = await take(watcher, 3)
    assert brief(frames) == [("ADDED", "1", first), ("MODIFIED", "1", second), ("DELETED", "1", third)]
    assert frames[-1].revision == third
    gone = frames[-1].events[-1].object
    assert gone.labels == {"x": "y"}


async def test_events_are_shared_by_watchers(bench: Bench) -> None:
    async with bench.cache.watch([Scope(PODS)]) as one, bench.cache.watch([Scope(PODS)]) as other:
        await bench.put(PODS + "a/1")
        await bench.delete(PODS + "a/1")
        ones, others = await take(one, 2), await take(other, 2)
    first = [event.object for frame in ones for event in frame.events]
    second = [event.object for frame in others for event in frame.events]
    assert all(a is b for a, b in zip(first, second, strict=True))


async def test_watch_from_the_past(bench: Bench) -> None:
    revisions = [await bench.put(PODS + f"a/{index}") for index in range(5)]
    await bench.cache.fresh()
    async with bench.cache.watch([Scope(PODS)], from_revision=revisions[1]) as watcher:
        frames = await take(watcher, 3)
        assert brief(frames) == [("ADDED", str(index), revisions[index]) for index in (2, 3, 4)]
        later = await bench.put(PODS + "a/9")
        assert brief(await take(watcher, 1)) == [("ADDED", "9", later)]


async def test_watch_from_a_revision_not_reached_yet(bench: Bench) -> None:
    now = await bench.cache.fresh()
    async with bench.cache.watch([Scope(PODS)], from_revision=now + 2) as watcher:
        await bench.put(PODS + "a/1")
        await bench.put(PODS + "a/2")
        third = await bench.put(PODS + "a/3")
        assert brief(await take(watcher, 1)) == [("ADDED", "3", third)]


async def test_several_kinds_in_one_order(bench: Bench) -> None:
    start = await bench.cache.fresh()
    scopes = [Scope(PODS), Scope(NODES)]
    async with bench.cache.watch(scopes) as live:
        expected = []
        for index in range(6):
            name = f"x{index}"
            key = PODS + "a/" + name if index % 2 else NODES + name
            expected.append(("ADDED", name, await bench.put(key)))
        assert brief(await take(live, 6)) == expected
    async with bench.cache.watch(scopes, from_revision=start) as replayed:
        assert brief(await take(replayed, 6)) == expected


async def test_selectors_turn_changes_into_additions_and_deletions(bench: Bench) -> None:
    scope = Scope(PODS, matches=lambda object_: object_.labels.get("app") == "web")
    start = await bench.cache.fresh()
    await bench.put(PODS + "a/1", app="db")
    added = await bench.put(PODS + "a/1", app="web", n="1")
    modified = await bench.put(PODS + "a/1", app="web", n="2")
    left = await bench.put(PODS + "a/1", app="db")
    await bench.put(PODS + "a/1", app="db", n="3")
    again = await bench.put(PODS + "a/1", app="web")
    gone = await bench.delete(PODS + "a/1")
    await bench.cache.fresh()
    async with bench.cache.watch([scope], from_revision=start) as watcher:
        frames = await take(watcher, 5)
    assert brief(frames) == [
        ("ADDED", "1", added),
        ("MODIFIED", "1", modified),
        ("DELETED", "1", left),
        ("ADDED", "1", again),
        ("DELETED", "1", gone),
    ]
    last_matching = [event.object for frame in frames for event in frame.events][2]
    assert last_matching.labels == {"app": "web", "n": "2"}


async def test_initial_events_then_their_end_then_changes(bench: Bench) -> None:
    await bench.put(PODS + "b/1")
    await bench.put(PODS + "a/1")
    revision = await bench.cache.fresh()
    async with bench.cache.watch(
        [Scope(PODS)], initial_events=True, end_initial_events=True, bookmarks=True
    ) as watcher:
        later = await bench.put(PODS + "c/1")
        first, end, change = [await anext(watcher) for _ in range(3)]
    assert [event.object.key for event in first.events] == [PODS + "a/1", PODS + "b/1"]
    assert {event.type for event in first.events} == {"ADDED"}
    assert (end.bookmark, end.initial_events_end, end.revision) == (True, True, revision)
    assert brief([change]) == [("ADDED", "1", later)]


async def test_initial_events_of_nothing_still_end(bench: Bench) -> None:
    async with bench.cache.watch([Scope(PODS)], initial_events=True, end_initial_events=True) as watcher:
        frame = await anext(watcher)
    assert (frame.events, frame.initial_events_end) == ([], True)


async def test_many_initial_events_come_in_parts_without_a_resume_point(bench: Bench) -> None:
    for index in range(1_200):
        await bench.store.create(f"{PODS}a/{index:04}", b"{}")
    revision = await bench.cache.fresh()
    async with bench.cache.watch([Scope(PODS)], initial_events=True) as watcher:
        frames = await take(watcher, 1_200)
    assert [frame.revision for frame in frames] == [0, 0, revision]
    assert [event.object.key for frame in frames for event in frame.events] == [
        f"{PODS}a/{index:04}" for index in range(1_200)
    ]


async def test_bookmarks(bench: Bench) -> None:
    async with bench.cache.watch([Scope(PODS)], bookmarks=True) as watcher:
        began = clock.now_s()
        frame = await anext(watcher)
        assert (frame.events, frame.bookmark, frame.revision) == ([], True, bench.cache.revision)
        assert 45 <= clock.now_s() - began <= 60
        await bench.put(NODES + "n")
        revision = await bench.cache.fresh()
        assert (await anext(watcher)).revision == revision


async def test_finishing_delivers_what_waits_and_a_last_bookmark(bench: Bench) -> None:
    async with bench.cache.watch([Scope(PODS)], bookmarks=True) as watcher:
        revision = await bench.put(PODS + "a/1")
        await bench.cache.fresh()
        bench.cache.finish_watchers()
        frames = [frame async for frame in watcher]
    assert brief(frames) == [("ADDED", "1", revision)]
    assert [(frame.bookmark, frame.revision) for frame in frames] == [(False, revision), (True, revision)]
    assert bench.cache.watcher_count == 0


async def test_index_and_namespace_and_name_scopes(bench: Bench) -> None:
    def on(node: str) -> Scope:
        return Scope(PODS, matches=lambda object_: object_.labels.get("node") == node, index=("node", node))

    await bench.put(PODS + "a/0", node="n1")
    await bench.cache.fresh()
    cache = bench.cache
    async with (
        cache.watch([on("n1")], initial_events=True) as node_1,
        cache.watch([on("n2")], initial_events=True) as node_2,
        cache.watch([Scope(PODS, prefix=PODS + "b/")]) as namespace_b,
        cache.watch([Scope(PODS, prefix=PODS + "a/1")]) as name,
        cache.watch(
            [Scope(PODS, prefix=PODS + "b/", matches=on("n1").matches, index=("node", "n1"))]
        ) as both,
    ):
        first = await bench.put(PODS + "a/1", node="n1")
        moved = await bench.put(PODS + "a/1", node="n2")
        gone = await bench.delete(PODS + "a/1")
        in_b = await bench.put(PODS + "b/1", node="n1")
        assert brief(await take(node_1, 4)) == [
            ("ADDED", "0", 2),
            ("ADDED", "1", first),
            ("DELETED", "1", moved),
            ("ADDED", "1", in_b),
        ]
        assert brief(await take(node_2, 2)) == [("ADDED", "1", moved), ("DELETED", "1", gone)]
        assert brief(await take(namespace_b, 1)) == [("ADDED", "1", in_b)]
        assert brief(await take(both, 1)) == [("ADDED", "1", in_b)]
        assert brief(await take(name, 3)) == [
            ("ADDED", "1", first),
            ("MODIFIED", "1", moved),
            ("DELETED", "1", gone),
        ]
    found = cache.select_index(PODS, "node", "n1")
    assert [object_.key for object_ in found.objects] == [PODS + "a/0", PODS + "b/1"]
    assert cache.select_index(PODS, "node", "n2").objects == []


async def test_history_is_bounded_and_says_so() -> None:
    async with running(Bench(CutStore(), ring_events=3)) as bench:
        start = bench.cache.revision
        revisions = [await bench.put(PODS + f"a/{index}") for index in range(5)]
        await bench.put(NODES + "n")
        await bench.cache.fresh()
        with pytest.raises(RevisionTooOld, match=rf"too old resource version: {start} \({revisions[1]}\)"):
            bench.cache.watch([Scope(PODS)], from_revision=start)
        async with bench.cache.watch([Scope(PODS)], from_revision=revisions[1]) as watcher:
            assert brief(await take(watcher, 3)) == [
                ("ADDED", str(index), revisions[index]) for index in (2, 3, 4)
            ]
        async with bench.cache.watch([Scope(NODES)], from_revision=start) as watcher:
            assert len(brief(await take(watcher, 1))) == 1


async def test_history_is_bounded_by_bytes() -> None:
    async with running(Bench(CutStore(), ring_bytes=1_000)) as bench:
        start = bench.cache.revision
        await bench.put(NODES + "n")
        for index in range(20):
            await bench.put(PODS + "a/1", x="y" * 90, n=str(index))
        await bench.cache.fresh()
        with pytest.raises(RevisionTooOld):
            bench.cache.watch([Scope(PODS)], from_revision=start)
        bench.cache.watch([Scope(NODES)], from_revision=start).close()


async def test_history_that_the_store_has_compacted_goes() -> None:
    async with running(Bench(CutStore())) as bench:
        start = bench.cache.revision
        revisions = [await bench.put(PODS + f"a/{index}") for index in range(4)]
        await bench.put(NODES + "n")
        await bench.cache.fresh()
        bench.cache.drop_history(revisions[1])
        with pytest.raises(RevisionTooOld, match=rf"too old resource version: {start} \({revisions[1]}\)"):
            bench.cache.watch([Scope(PODS)], from_revision=start)
        async with bench.cache.watch([Scope(PODS)], from_revision=revisions[1]) as watcher:
            assert len(brief(await take(watcher, 2))) == 2
        # Nothing of this one has gone.
        bench.cache.watch([Scope(NODES)], from_revision=start).close()
        bench.cache.drop_history(bench.cache.revision)
        async with bench.cache.watch([Scope(PODS)], from_revision=revisions[3]) as watcher:
            last = await bench.put(PODS + "a/0", x="y")
            assert brief(await take(watcher, 1)) == [("MODIFIED", "0", last)]


class Made(Thing):
    """Knows whether something costly hangs on it."""

    __slots__ = ("cost",)

    def release(self) -> None:
        self.cost = None


async def test_what_was_made_of_old_states_is_given_up() -> None:
    store = CutStore()
    bench = Bench(store)
    states: list[Made] = []

    def make(key: str, value: bytes, create_revision: int, revision: int) -> Made:
        states.append(Made(key, value, create_revision, revision))
        states[-1].cost = "much"  # type: ignore[assignment]
        return states[-1]

    bench.cache = WatchCache(store, resources=[PODS, NODES], make=make)
    async with running(bench):
        start = bench.cache.revision
        other = await bench.put(NODES + "n")
        revisions = [await bench.put(PODS + "a/1", n=str(number)) for number in range(1_000)]
        await bench.cache.fresh()
        kept = [state.revision for state in states if state.cost]
        # The newest of each, and some that those who follow may not have seen yet.
        assert kept[0] == other
        assert kept[1:] == revisions[-len(kept) + 1 :]
        assert 100 < len(kept) < 500
        # History is all there.
        async with bench.cache.watch([Scope(PODS)], from_revision=start) as watcher:
            seen = brief(await take(watcher, 1_000))
        assert [revision for _, _, revision in seen] == revisions


async def test_a_server_that_starts_resumes_watches_of_its_predecessor() -> None:
    bench = Bench(CutStore())
    start = await bench.store.current_revision()
    first = await bench.put(PODS + "a/1")
    second = await bench.put(PODS + "a/1", x="y")
    third = await bench.delete(PODS + "a/1")
    # The last change is none of a resource: only a progress mark tells that the cache is there.
    await bench.put("/registry/other/a")
    events = [("ADDED", "1", first), ("MODIFIED", "1", second), ("DELETED", "1", third)]
    async with running(bench):
        for number, revision in enumerate((start, first, second)):
            async with bench.cache.watch([Scope(PODS)], from_revision=revision) as watcher:
                assert brief(await take(watcher, 3 - number)) == events[number:]
        assert bench.cache.select(PODS).objects == []


class SilentStore(CutStore):
    """As etcd: says that a revision is gone, not where history begins."""

    async def list(self, prefix: str, **options: Any) -> Page:
        try:
            return await super().list(prefix, **options)
        except Expired:
            raise Expired(0) from None


@pytest.mark.parametrize("store", [CutStore, SilentStore])
async def test_history_from_before_the_start_ends_at_the_compaction(store: type[CutStore]) -> None:
    bench = Bench(store())
    for number in range(100):
        await bench.put(NODES + "n", n=str(number))
    first = await bench.put(PODS + "a/1")
    second = await bench.put(PODS + "a/1", x="y")
    third = await bench.put(PODS + "a/2")
    await bench.store.compact(second)
    async with running(bench):
        with pytest.raises(RevisionTooOld):
            bench.cache.watch([Scope(PODS)], from_revision=first)
        async with bench.cache.watch([Scope(PODS)], from_revision=second) as watcher:
            assert brief(await take(watcher, 1)) == [("ADDED", "2", third)]


async def test_history_from_before_the_start_is_bounded() -> None:
    bench = Bench(CutStore(), history_revisions=1)
    first = await bench.put(PODS + "a/1")
    second = await bench.put(PODS + "a/1", x="y")
    await bench.put(PODS + "a/1", x="z")
    async with running(bench):
        with pytest.raises(RevisionTooOld):
            bench.cache.watch([Scope(PODS)], from_revision=first)
        bench.cache.watch([Scope(PODS)], from_revision=second).close()


async def test_history_compacted_while_the_cache_catches_up() -> None:
    bench = Bench(CutStore())
    await bench.put(PODS + "a/1")
    bench.store.failure = Expired(1)
    second = await bench.put(PODS + "a/1", x="y")
    async with running(bench):
        assert [item.revision for item in bench.cache.select(PODS).objects] == [second]
        with pytest.raises(RevisionTooOld):
            bench.cache.watch([Scope(PODS)], from_revision=second - 1)


async def test_a_slow_watcher_is_closed_and_the_others_go_on() -> None:
    async with running(Bench(CutStore(), queue_events=5)) as bench:
        slow, quick = bench.cache.watch([Scope(PODS)]), bench.cache.watch([Scope(PODS)])
        for index in range(8):
            await bench.put(PODS + f"a/{index}")
            await take(quick, 1)
        assert bench.cache.watcher_count == 1
        with pytest.raises(SlowWatcher):
            await anext(slow)
        await bench.put(PODS + "a/9")
        await take(quick, 1)
        quick.close()
        assert bench.cache.watcher_count == 0


async def test_relisting_hands_out_the_difference_in_order(bench: Bench) -> None:
    for name in ("a/kept", "a/changed", "a/gone", "a/again"):
        await bench.put(PODS + name)
    known = await bench.cache.fresh()
    async with bench.cache.watch([Scope(PODS)]) as watcher:
        # The stream breaks before it delivers any of these, and they are compacted.
        bench.store.failure = Expired(1)
        changed = await bench.put(PODS + "a/changed", x="y")
        await bench.delete(PODS + "a/gone")
        await bench.delete(PODS + "a/again")
        again = await bench.put(PODS + "a/again", x="y")
        again = await bench.put(PODS + "a/again", x="z")
        new = await bench.put(PODS + "a/new")
        await bench.delete(PODS + "a/new")
        listed = await bench.put(PODS + "a/newer")
        await bench.cache.fresh()
        assert bench.store.watches_opened == 2
        events = brief(await take(watcher, 5))
        assert events == [
            ("MODIFIED", "changed", changed),
            ("DELETED", "again", again - 2),
            ("ADDED", "again", again),
            ("DELETED", "gone", listed),
            ("ADDED", "newer", listed),
        ]
        after = await bench.put(PODS + "a/newer", x="y")
        assert brief(await take(watcher, 1)) == [("MODIFIED", "newer", after)]
        assert new < listed
        # Who stands between the lost position and the listing has to list too.
        for revision in (known, changed):
            with pytest.raises(RevisionTooOld):
                bench.cache.watch([Scope(PODS)], from_revision=revision)


async def test_a_store_that_is_away_for_a_while(bench: Bench) -> None:
    async with bench.cache.watch([Scope(PODS)]) as watcher:
        await bench.store.cut(StoreUnavailable("gone"))
        revision = await bench.put(PODS + "a/1")
        assert brief(await take(watcher, 1)) == [("ADDED", "1", revision)]


async def test_old_listings_come_from_the_store(bench: Bench) -> None:
    first = await bench.put(PODS + "a/1")
    second = await bench.put(PODS + "a/2")
    await bench.delete(PODS + "a/1")
    await bench.cache.fresh()
    listing = await bench.cache.list_at(PODS, second, limit=1)
    assert [(object_.key, object_.revision) for object_ in listing.objects] == [(PODS + "a/1", first)]
    assert (listing.revision, listing.more, listing.remaining) == (second, True, 1)
    rest = await bench.cache.list_at(PODS, second, start_after=PODS + "a/1")
    assert rest.objects == [bench.cache.get(PODS + "a/2")]
