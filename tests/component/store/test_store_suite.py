"""One suite for every store: what `apiserver.store.base.Store` promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from apiserver.store.base import (
    Expired,
    FutureRevision,
    KeyExists,
    RevisionMismatch,
    Store,
    StoreEvent,
    StoreUnavailable,
    ValueTooLarge,
)
from apiserver.store.etcd import EtcdStore
from apiserver.store.memory import MemoryStore


@pytest.fixture(params=["memory", "etcd"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        opened: Store = MemoryStore()
    else:
        opened = EtcdStore([request.getfixturevalue("etcd").endpoint])
    yield opened
    await opened.close()


async def collect(store: Store, prefix: str, start_revision: int, count: int) -> list[StoreEvent]:
    """The first `count` events of a watch."""
    events: list[StoreEvent] = []
    async with asyncio.timeout(10), aclosing(store.watch(prefix, start_revision=start_revision)) as watch:
        async for batch in watch:
            events.extend(batch.events)
            if batch.events:
                assert batch.revision == batch.events[-1].revision
            if len(events) >= count:
                break
    return events


async def test_create_get_update_delete(store: Store, key_prefix: str) -> None:
    key = key_prefix + "a"
    assert (await store.get(key))[0] is None
    created = await store.create(key, b"1")
    found, revision = await store.get(key)
    assert found is not None
    assert (found.value, found.create_revision, found.mod_revision) == (b"1", created, created)
    assert revision >= created
    updated = await store.update(key, b"2", expected_revision=created)
    assert updated > created
    found, _ = await store.get(key)
    assert found is not None
    assert (found.value, found.create_revision, found.mod_revision) == (b"2", created, updated)
    deleted = await store.delete(key, expected_revision=updated)
    assert deleted > updated
    assert (await store.get(key))[0] is None
    recreated = await store.create(key, b"3")
    found, _ = await store.get(key)
    assert found is not None
    assert found.create_revision == recreated > deleted


async def test_failed_writes_tell_the_current_state(store: Store, key_prefix: str) -> None:
    key = key_prefix + "a"
    first = await store.create(key, b"1")
    with pytest.raises(KeyExists) as exists:
        await store.create(key, b"2")
    assert (exists.value.current.value, exists.value.current.mod_revision) == (b"1", first)
    second = await store.update(key, b"2", expected_revision=first)
    for attempt in (
        store.update(key, b"3", expected_revision=first),
        store.delete(key, expected_revision=first),
    ):
        with pytest.raises(RevisionMismatch) as mismatch:
            await attempt
        assert mismatch.value.current is not None
        assert (mismatch.value.current.value, mismatch.value.current.mod_revision) == (b"2", second)
    await store.delete(key, expected_revision=second)
    with pytest.raises(RevisionMismatch) as mismatch:
        await store.update(key, b"3", expected_revision=second)
    assert mismatch.value.current is None
    with pytest.raises(RevisionMismatch) as mismatch:
        await store.delete(key, expected_revision=second)
    assert mismatch.value.current is None


async def test_empty_value_is_a_value(store: Store, key_prefix: str) -> None:
    revision = await store.create(key_prefix + "a", b"")
    found, _ = await store.get(key_prefix + "a")
    assert found is not None
    assert found.value == b""
    [event] = await collect(store, key_prefix, revision, 1)
    assert event.value == b""


async def test_too_large_a_value_is_refused(store: Store, key_prefix: str) -> None:
    for size in (1_600_000, 3_000_000):
        with pytest.raises(ValueTooLarge):
            await store.create(key_prefix + "a", b"x" * size)
    assert (await store.get(key_prefix + "a"))[0] is None
    await store.create(key_prefix + "a", b"x" * 1_400_000)


async def test_list_is_sorted_paged_and_of_one_revision(store: Store, key_prefix: str) -> None:
    names = ["b", "a/x", "a", "a-b", "ab", "c", "a/x/y"]
    for name in names:
        await store.create(key_prefix + name, name.encode())
    other = key_prefix[:-1] + "-other/a"
    await store.create(other, b"")
    page = await store.list(key_prefix)
    assert [item.key for item in page.items] == sorted(key_prefix + name for name in names)
    assert (page.more, page.remaining) == (False, 0)
    first = await store.list(key_prefix, limit=3)
    assert [item.key for item in first.items] == [item.key for item in page.items[:3]]
    assert (first.more, first.remaining) == (True, 4)
    changed = await store.update(page.items[4].key, b"new", expected_revision=page.items[4].mod_revision)
    await store.delete(page.items[5].key, expected_revision=page.items[5].mod_revision)
    second = await store.list(key_prefix, start_after=first.items[-1].key, limit=4, revision=first.revision)
    assert second.items == page.items[3:]
    assert (second.more, second.remaining, second.revision) == (False, 0, first.revision)
    newest = await store.list(key_prefix)
    assert len(newest.items) == 6
    assert newest.items[4].mod_revision == changed
    assert newest.revision > page.revision


async def test_list_of_more_than_a_page(store: Store, key_prefix: str) -> None:
    async with asyncio.TaskGroup() as group:
        for index in range(1_101):
            group.create_task(store.create(f"{key_prefix}{index:04}", b""))
    page = await store.list(key_prefix)
    assert [item.key for item in page.items] == [f"{key_prefix}{index:04}" for index in range(1_101)]
    assert (page.more, page.remaining) == (False, 0)
    limited = await store.list(key_prefix, limit=1_050)
    assert len(limited.items) == 1_050
    assert (limited.more, limited.remaining) == (True, 51)


async def test_old_and_future_revisions(store: Store, key_prefix: str) -> None:
    key = key_prefix + "a"
    first = await store.create(key, b"1")
    second = await store.update(key, b"2", expected_revision=first)
    third = await store.delete(key, expected_revision=second)
    for revision, value in ((first - 1, None), (first, b"1"), (second, b"2"), (third, None)):
        found, _ = await store.get(key, revision=revision)
        assert (found.value if found else None) == value
        page = await store.list(key_prefix, revision=revision)
        assert [item.value for item in page.items] == ([] if value is None else [value])
        assert page.revision == revision
    with pytest.raises(FutureRevision):
        await store.get(key, revision=third + 1_000_000)
    with pytest.raises(FutureRevision):
        await store.list(key_prefix, revision=third + 1_000_000)


async def test_current_revision_covers_acknowledged_writes(store: Store, key_prefix: str) -> None:
    before = await store.current_revision()
    for index in range(20):
        revision = await store.create(f"{key_prefix}{index}", b"")
        assert revision > before
        answers = await asyncio.gather(*(store.current_revision() for _ in range(5)))
        assert min(answers) >= revision
        before = max(answers)


async def test_watch_from_the_past_and_on(store: Store, key_prefix: str) -> None:
    key = key_prefix + "a"
    first = await store.create(key, b"1")
    second = await store.update(key, b"2", expected_revision=first)
    third = await store.delete(key, expected_revision=second)
    events = await collect(store, key_prefix, first, 3)
    assert [(event.revision, event.value) for event in events] == [
        (first, b"1"),
        (second, b"2"),
        (third, None),
    ]
    assert [event.create_revision for event in events] == [first, first, 0]
    previous = [event.previous for event in events]
    assert previous[0] is None
    assert previous[1] is not None
    assert previous[2] is not None
    assert (previous[1].value, previous[1].mod_revision) == (b"1", first)
    assert (previous[2].value, previous[2].mod_revision) == (b"2", second)
    assert [event.revision for event in await collect(store, key_prefix, second, 2)] == [second, third]
    async with asyncio.timeout(10), aclosing(store.watch(key_prefix, start_revision=third)) as watch:
        assert [event.revision for event in (await anext(watch)).events] == [third]
        later = await store.create(key, b"4")
        assert [event.revision for event in (await anext(watch)).events] == [later]


async def test_watch_sees_only_its_prefix(store: Store, key_prefix: str) -> None:
    start = await store.current_revision() + 1
    await store.create(key_prefix + "b/x", b"no")
    wanted = await store.create(key_prefix + "a/x", b"yes")
    events = await collect(store, key_prefix + "a/", start, 1)
    assert [(event.key, event.revision) for event in events] == [(key_prefix + "a/x", wanted)]


async def test_watch_without_previous(store: Store, key_prefix: str) -> None:
    first = await store.create(key_prefix + "a", b"1")
    second = await store.delete(key_prefix + "a", expected_revision=first)
    async with asyncio.timeout(10):
        async with aclosing(store.watch(key_prefix, start_revision=second, with_previous=False)) as watch:
            assert [event.previous for event in (await anext(watch)).events] == [None]


async def test_progress_marks_come_after_the_events(store: Store, key_prefix: str) -> None:
    start = await store.current_revision() + 1
    async with asyncio.timeout(10), aclosing(store.watch(key_prefix, start_revision=start)) as watch:
        own = await store.create(key_prefix + "a", b"")
        batch = await anext(watch)
        assert batch.revision == own
        elsewhere = await store.create(key_prefix[:-1] + "-elsewhere", b"")
        waiting = asyncio.ensure_future(anext(watch))
        while not waiting.done():
            await store.request_progress()
            await asyncio.wait({waiting}, timeout=0.05)
        mark = waiting.result()
        assert mark.events == ()
        assert mark.revision >= elsewhere


async def test_compaction(store: Store, key_prefix: str) -> None:
    key = key_prefix + "a"
    first = await store.create(key, b"1")
    gone = await store.create(key_prefix + "gone", b"")
    deleted = await store.delete(key_prefix + "gone", expected_revision=gone)
    second = await store.update(key, b"2", expected_revision=first)
    third = await store.update(key, b"3", expected_revision=second)
    await store.compact(second)
    await store.compact(second)
    await store.compact(first)
    for revision in (first, deleted):
        with pytest.raises(Expired):
            await store.get(key, revision=revision)
        with pytest.raises(Expired):
            await store.list(key_prefix, revision=revision)
    found, _ = await store.get(key, revision=second)
    assert found is not None
    assert found.value == b"2"
    assert [item.value for item in (await store.list(key_prefix, revision=second)).items] == [b"2"]
    for start in (first, second):
        with pytest.raises(Expired):
            await collect(store, key_prefix, start, 1)
    assert [event.revision for event in await collect(store, key_prefix, second + 1, 1)] == [third]
    with pytest.raises(FutureRevision):
        await store.compact(third + 1_000_000)


async def test_a_watch_that_is_up_to_date_survives_a_compaction(store: Store, key_prefix: str) -> None:
    first = await store.create(key_prefix + "a", b"1")
    async with asyncio.timeout(10), aclosing(store.watch(key_prefix, start_revision=first)) as watch:
        await anext(watch)
        second = await store.update(key_prefix + "a", b"2", expected_revision=first)
        await anext(watch)
        await store.compact(second)
        third = await store.update(key_prefix + "a", b"3", expected_revision=second)
        assert [event.revision for event in (await anext(watch)).events] == [third]


async def test_concurrent_writers_lose_nothing(store: Store, key_prefix: str) -> None:
    """Ten writers count one key up: each success is one step, and the watch shows each step once."""
    key = key_prefix + "count"
    start = await store.create(key, b"0")

    async def count_up() -> None:
        for _ in range(10):
            current, _ = await store.get(key)
            while True:
                assert current is not None
                value = str(int(current.value) + 1).encode()
                try:
                    await store.update(key, value, expected_revision=current.mod_revision)
                    break
                except RevisionMismatch as mismatch:
                    current = mismatch.current

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(count_up())
    events = await collect(store, key_prefix, start, 101)
    assert [int(event.value or b"-1") for event in events] == list(range(101))


async def test_many_watchers_see_the_same(store: Store, key_prefix: str) -> None:
    start = await store.current_revision() + 1
    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(collect(store, key_prefix, start, 50)) for _ in range(5)]
        for index in range(50):
            await store.create(f"{key_prefix}{index % 7}-{index}", b"")
    seen = [[event.revision for event in reader.result()] for reader in readers]
    assert seen[0] == sorted(seen[0])
    assert all(revisions == seen[0] for revisions in seen)


async def test_large_transactions_of_watch_events_arrive_whole(store: Store, key_prefix: str) -> None:
    """More in one response than a gRPC message usually carries: etcd sends it in fragments."""
    start = await store.current_revision() + 1
    revision = await store.create(key_prefix + "a", b"x" * 1_000_000)
    for _ in range(5):
        revision = await store.update(key_prefix + "a", b"x" * 1_000_000, expected_revision=revision)
    events = await collect(store, key_prefix, start, 6)
    assert [len(event.value or b"") for event in events] == [1_000_000] * 6
    assert events[-1].revision == revision


async def test_a_closed_store_says_so(key_prefix: str) -> None:
    store = MemoryStore()
    watch = store.watch(key_prefix)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    with pytest.raises(StoreUnavailable):
        await store.get(key_prefix)
