"""A registry over the memory store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from apiserver.registry import Registry, build_cache
from apiserver.store.memory import MemoryStore
from podyard.api.types import Namespace
from tests.unit.apiserver.registry_api import Api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A registry with the namespace `default` in it."""
    store = MemoryStore()
    cache = build_cache(store)
    running = asyncio.ensure_future(cache.run())
    await cache.wait_ready()
    opened = Api(store, Registry(store, cache))
    await opened.create(Namespace(metadata={"name": "default"}))
    yield opened
    running.cancel()
    await asyncio.wait({running})
    assert cache.watcher_count == 0
