"""A period of history stays, older history goes."""

from __future__ import annotations

import asyncio

import pytest

from apiserver import compaction
from apiserver.core import ApiCore
from apiserver.store.base import Expired
from apiserver.store.memory import MemoryStore
from podyard.base import clock
from podyard.base.run import Background

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


async def test_a_server_keeps_as_much_as_it_is_told() -> None:
    core = ApiCore(MemoryStore(), compaction_interval_s=20)
    async with Background() as background:
        core.start(background)
        old = await core.store.create("/registry/a", b"0")
        await core.store.update("/registry/a", b"1", expected_revision=old)
        await clock.real_sleep(11)
        await core.store.get("/registry/a", revision=old)
        # Two rounds: the first notes what the second may forget.
        await clock.real_sleep(35)
        with pytest.raises(Expired):
            await core.store.get("/registry/a", revision=old)
    await core.close()
