"""The store's health: asked for seldom, bounded, shared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.health import StoreHealth
from apiserver.store.base import StoreUnavailable
from podyard.base import clock

pytestmark = pytest.mark.virtual


class Store:
    """A store whose reads end as told: with a number, an exception, or never."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.hangs = False

    async def current_revision(self) -> int:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return 7


@pytest.fixture
def store() -> Any:
    return Store()


async def test_it_follows_the_store(store: Any) -> None:
    health = StoreHealth(store)
    assert health.problem() is not None
    await health.refresh()
    assert health.problem() is None
    store.error = StoreUnavailable("no leader")
    await clock.sleep(1.0)
    await health.refresh()
    assert health.problem() == "no leader"
    store.error = None
    await clock.sleep(1.0)
    await health.refresh()
    assert health.problem() is None


async def test_a_store_that_hangs_is_not_waited_for_long(store: Any) -> None:
    store.hangs = True
    health = StoreHealth(store)
    start_s = clock.real_monotonic_s()
    await health.refresh()
    assert clock.real_monotonic_s() - start_s == pytest.approx(2.0)
    assert health.problem() == "no answer within 2.0 s"


async def test_many_who_ask_cost_one_read(store: Any) -> None:
    health = StoreHealth(store)
    await asyncio.gather(*(health.refresh() for _ in range(50)))
    await health.refresh()
    assert store.asked == 1
    await clock.sleep(60.0)
    assert store.asked == 1
