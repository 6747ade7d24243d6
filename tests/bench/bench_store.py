"""CPU of the store and the watch cache per operation: `bench_store.py [host:port of an etcd]`.

Fan-out of a change to 1, 50 and 200 watchers, a kubelet-like index with 200 nodes, a list of 1,000
objects, a consistent read; with an etcd, its reads and writes too. CPU is this process's alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from apiserver.store.base import Store, StoreEvent
from apiserver.store.etcd import EtcdStore
from apiserver.store.memory import MemoryStore
from apiserver.watchcache import WatchCache
from apiserver.watchcache_events import CachedObject, Scope

PODS = "/registry/pods/"
VALUE = b"x" * 1_500


async def measure(name: str, count: int, work: Callable[[], Awaitable[object]]) -> None:
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    row = {"name": name, "count": count, "cpu_us": round(cpu / count * 1e6, 1)}
    print(json.dumps({**row, "wall_us": round(wall / count * 1e6, 1)}))


def node_of(object_: CachedObject) -> str:
    return object_.key[-3:]


async def fan_out(watchers: int, *, indexed: bool = False, changes: int = 2_000) -> None:
    cache = WatchCache(MemoryStore(), resources=[PODS])
    cache.add_index(PODS, "node", node_of)
    open_watchers = [
        cache.watch(
            [
                Scope(
                    PODS,
                    matches=(lambda object_, node=f"{index:03}": node_of(object_) == node),
                    index=("node", f"{index:03}"),
                )
                if indexed
                else Scope(PODS)
            ]
        )
        for index in range(watchers)
    ]
    received = 0

    async def read(watcher: object) -> None:
        nonlocal received
        async for frame in watcher:  # type: ignore[attr-defined]
            received += len(frame.events)

    async def run() -> None:
        for first in range(0, changes, 100):
            for index in range(first, first + 100):
                event = StoreEvent(f"{PODS}default/pod-{index % 200:03}", index + 2, VALUE, None, 2)
                cache._take(event)
            cache._reach(first + 101)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        cache.finish_watchers()

    async with asyncio.TaskGroup() as group:
        for watcher in open_watchers:
            group.create_task(read(watcher))
        await asyncio.sleep(0)
        name = f"fan-out to {watchers} watchers" + (" by index" if indexed else "")
        await measure(name, changes, run)
    assert received == (changes if indexed else changes * watchers), received


async def lists(store: Store, name: str) -> None:
    for index in range(1_000):
        await store.create(f"{PODS}bench/{index:04}", VALUE)
    cache = WatchCache(store, resources=[PODS])
    running = asyncio.ensure_future(cache.run())
    await cache.wait_ready()

    async def select() -> None:
        for _ in range(200):
            assert len(cache.select(PODS, PODS + "bench/").objects) == 1_000

    async def consistent() -> None:
        for _ in range(500):
            await cache.fresh()

    async def in_flight() -> None:
        for _ in range(10):
            await asyncio.gather(*(cache.fresh() for _ in range(50)))

    async def store_list() -> None:
        for _ in range(10):
            assert len((await store.list(PODS + "bench/")).items) == 1_000

    await measure(f"{name}: select 1,000 objects from the cache", 200, select)
    await measure(f"{name}: consistent read", 500, consistent)
    await measure(f"{name}: consistent read, 50 in flight", 500, in_flight)
    await measure(f"{name}: list 1,000 objects from the store", 10, store_list)
    running.cancel()
    await asyncio.wait({running})


async def writes(store: Store, name: str) -> None:
    revisions: dict[str, int] = {}

    async def create() -> None:
        for index in range(500):
            key = f"{PODS}bench-writes/{index:04}"
            revisions[key] = await store.create(key, VALUE)

    async def update() -> None:
        async def one(key: str, revision: int) -> None:
            revisions[key] = await store.update(key, VALUE, expected_revision=revision)

        items = list(revisions.items())
        for first in range(0, len(items), 20):
            await asyncio.gather(*(one(*item) for item in items[first : first + 20]))

    async def delete() -> None:
        for key, revision in revisions.items():
            await store.delete(key, expected_revision=revision)

    await measure(f"{name}: create", 500, create)
    await measure(f"{name}: update, 20 in flight", 500, update)
    await measure(f"{name}: delete", 500, delete)


async def main(endpoints: list[str]) -> None:
    for watchers in (1, 50, 200):
        await fan_out(watchers)
    await fan_out(200, indexed=True)
    stores: dict[str, Store] = {"memory": MemoryStore()}
    if endpoints:
        stores["etcd"] = EtcdStore(endpoints)
    for name, store in stores.items():
        await lists(store, name)
        await writes(store, name)
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
