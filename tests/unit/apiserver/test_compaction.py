"""A period of history stays, older history goes."""

from __future__ import annotations

import asyncio

import pytest

from apiserver import compaction
from apiserver.store.base import Expired
from apiserver.store.memory import MemoryStore
from podyard.base import clock

pytestmark = pytest.mark.virtual


async def test_history_of_a_period_is_kept() -> None:
    store = MemoryStore()
    told: list[int] = []
    running = asyncio.ensure_future(compaction.run(store, told.append, period_s=100))
    revision = old = await store.create("/registry/a", b"0")
    for step in range(3):
        await clock.real_sleep(106)
        if step == 2:
            with pytest.raises(Expired):
                await store.get("/registry/a", revision=old - 1)
        await store.get("/registry/a", revision=revision)
        revision = await store.update("/registry/a", b"1", expected_revision=revision)
    assert told == [old, old + 1]
    running.cancel()
    await asyncio.wait({running})
