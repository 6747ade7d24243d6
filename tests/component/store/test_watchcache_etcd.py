"""The watch cache over real etcd that is killed and frozen while it follows."""

from __future__ import annotations

import asyncio
from typing import Any

from apiserver.store.base import StoreError
from apiserver.store.etcd import EtcdStore
from apiserver.watchcache import WatchCache
from apiserver.watchcache_events import Scope


async def test_consistent_reads_and_watchers_through_a_restart(own_etcd: Any, key_prefix: str) -> None:
    store = EtcdStore([own_etcd.endpoint], timeout_s=20.0)
    cache = WatchCache(store, resources=[key_prefix])
    running = asyncio.ensure_future(cache.run())
    await cache.wait_ready(timeout_s=10)
    seen: list[int] = []
    written: list[int] = []

    async def watch() -> None:
        async with cache.watch([Scope(key_prefix)]) as watcher:
            async for frame in watcher:
                seen.extend(event.object.revision for event in frame.events)

    async def write(count: int) -> None:
        for _ in range(count):
            key = f"{key_prefix}{len(written):05}"
            while True:
                try:
                    written.append(await store.create(key, b""))
                    break
                except StoreError:
                    await asyncio.sleep(0.05)
            # Outside the root too, so that the revision runs ahead of the cached keys.
            await store.create(f"/outside{key}", b"")
            await cache.fresh(timeout_s=20)
            found = cache.get(key)
            assert found is not None
            assert found.revision == written[-1]

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        await write(30)
        for fault, cure in ((own_etcd.kill, own_etcd.start), (own_etcd.pause, own_etcd.resume)):
            writing = group.create_task(write(30))
            await asyncio.to_thread(fault)
            await asyncio.sleep(1.5)
            await asyncio.to_thread(cure)
            await writing
        await cache.fresh()
        await asyncio.sleep(0)
        watching.cancel()
    assert seen == written
    running.cancel()
    await asyncio.wait({running})
    await store.close()
