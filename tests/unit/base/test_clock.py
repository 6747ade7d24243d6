"""Cluster time: waits follow moves and factors, on a real loop and on the virtual one."""

from __future__ import annotations

import asyncio

import pytest

from podyard.base import clock
from podyard.testing.loop import DeadlockError, VirtualLoop


@pytest.fixture
def moved_clock():
    """Gives the process's clock back as it was."""
    yield
    clock._CLOCK.__init__()


@pytest.mark.virtual
async def test_sleep_takes_cluster_time_and_no_real_time():
    before_s, real_before_s = clock.now_s(), asyncio.get_running_loop().time()
    await clock.sleep(300)
    assert clock.now_s() - before_s == pytest.approx(300, abs=1e-3)
    assert asyncio.get_running_loop().time() - real_before_s == pytest.approx(300, abs=1e-3)


@pytest.mark.virtual
async def test_timeout_expires_and_is_told_apart_from_cancellation():
    with pytest.raises(TimeoutError):
        async with clock.timeout(5):
            await clock.sleep(6)
    async with clock.timeout(5):
        await clock.sleep(4)
    await clock.sleep(10)  # the passed deadline must not fire into later code


@pytest.mark.virtual
async def test_timers_fire_in_order_and_cancelled_ones_never():
    seen: list[str] = []
    now_s = clock.now_s()
    clock.call_at(now_s + 2, seen.append, "second")
    clock.call_at(now_s + 1, seen.append, "first")
    clock.call_at(now_s + 1.5, seen.append, "cancelled").cancel()
    await clock.sleep(3)
    assert seen == ["first", "second"]


@pytest.mark.virtual
async def test_a_cancelled_sleep_leaves_no_timer_that_holds_the_loop():
    task = asyncio.ensure_future(clock.sleep(1000))
    await clock.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_waiting_for_nothing_is_a_deadlock_error():
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(DeadlockError):
        runner.run(wait_for_ever())


async def test_a_jump_wakes_a_long_sleeper_at_once(moved_clock):
    task = asyncio.ensure_future(clock.sleep(300))
    await asyncio.sleep(0)
    clock.move(clock.now_s() + 301)
    async with asyncio.timeout(5):
        await task


async def test_a_factor_speeds_waits_up_and_time_never_goes_back(moved_clock):
    clock.move(clock.now_s(), factor=10_000)
    async with asyncio.timeout(5):
        await clock.sleep(300)
    with pytest.raises(ValueError, match="never goes back"):
        clock.move(clock.now_s() - 10)


async def test_a_frozen_clock_stands_still(moved_clock):
    clock.move(clock.now_s(), factor=0)
    frozen_s = clock.now_s()
    await asyncio.sleep(0.01)
    assert clock.now_s() == frozen_s


def test_the_same_seed_gives_the_same_interleaving():
    def history(seed: int) -> list[int]:
        seen: list[int] = []

        async def main() -> None:
            async def worker(number: int) -> None:
                for _ in range(3):
                    await clock.sleep(1)
                    seen.append(number)

            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(worker(number))

        with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
            runner.run(main())
        return seen

    assert history(1) == history(1)
    assert len({tuple(history(seed)) for seed in range(8)}) > 1


@pytest.mark.virtual
async def test_waits_that_end_early_do_not_pile_up():
    kept = clock.call_at(clock.now_s() + 500, lambda: None)
    for _ in range(5000):
        clock.call_at(clock.now_s() + 300, lambda: None).cancel()
    assert len(clock._timers()) < 300
    assert not kept.cancelled
    kept.cancel()


@pytest.mark.virtual
async def test_a_timer_that_cancels_others_while_it_runs():
    seen = []
    others = [clock.call_at(clock.now_s() + 1, seen.append, number) for number in range(400)]

    def cancel_most():
        for other in others[:399]:
            other.cancel()

    clock.call_at(clock.now_s() + 0.5, cancel_most)
    await clock.sleep(2)
    assert seen == [399]
