"""Callers in flight share an answer that is never older than their question."""

from __future__ import annotations

import asyncio

import pytest

from apiserver.store.shared_call import SharedCall

pytestmark = pytest.mark.virtual


class Counter:
    """A fetch that takes a second and answers how many had started before it."""

    def __init__(self) -> None:
        self.started = 0
        self.failure: Exception | None = None

    async def fetch(self) -> int:
        self.started += 1
        answer = self.started
        await asyncio.sleep(1)
        if self.failure is not None:
            raise self.failure
        return answer


async def test_newcomers_share_the_next_fetch_not_the_running_one() -> None:
    counter = Counter()
    shared = SharedCall(counter.fetch)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared())
        await asyncio.sleep(0.5)
        later = [group.create_task(shared()) for _ in range(10)]
    assert first.result() == 1
    assert {task.result() for task in later} == {2}
    assert counter.started == 2


async def test_a_cancelled_caller_harms_nobody() -> None:
    counter = Counter()
    shared = SharedCall(counter.fetch)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(shared())
        await asyncio.sleep(0.1)
        leader = group.create_task(shared())
        await asyncio.sleep(0.1)
        followers = [group.create_task(shared()) for _ in range(3)]
        await asyncio.sleep(0.1)
        leader.cancel()
        followers[0].cancel()
    assert running.result() == 1
    assert [task.result() for task in followers[1:]] == [2, 2]
    assert leader.cancelled()


async def test_the_one_that_fetches_is_cancelled() -> None:
    counter = Counter()
    shared = SharedCall(counter.fetch)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(shared())
        await asyncio.sleep(0.1)
        follower = group.create_task(shared())
        await asyncio.sleep(0.1)
        running.cancel()
    assert follower.result() == 2
    assert await shared() == 3


async def test_a_failure_reaches_all_who_share_it_and_no_one_later() -> None:
    counter = Counter()
    shared = SharedCall(counter.fetch)
    running = asyncio.ensure_future(shared())
    await asyncio.sleep(0.1)
    sharers = [asyncio.ensure_future(shared()) for _ in range(2)]
    await asyncio.sleep(1)
    counter.failure = ValueError("no")
    results = await asyncio.gather(*sharers, return_exceptions=True)
    assert await running == 1
    assert [type(result) for result in results] == [ValueError, ValueError]
    counter.failure = None
    assert await shared() == 3
