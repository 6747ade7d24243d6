"""A registry over the memory store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from apiserver.registry import Registry, build_cache
from apiserver.store.memory import MemoryStore
from podyard.api.types import Namespace, ServiceAccount
from tests.unit.apiserver.registry_api import Api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A registry with the namespace `default` in it, which has its service account."""
    store = MemoryStore()
    cache = build_cache(store)
    running = asyncio.ensure_future(cache.run())
    await cache.wait_ready()
    opened = Api(store, Registry(store, cache))
    await opened.create(Namespace(metadata={"name": "default"}))
    await opened.create(ServiceAccount(metadata={"name": "default", "namespace": "default"}))
    yield opened
    running.cancel()
    await asyncio.wait({running})
    assert cache.watcher_count == 0
