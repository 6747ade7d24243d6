"""The `retry` shell over `podyard.base.backoff`, in real time: for sockets and processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from podyard.base import clock, ids
from podyard.base.backoff import Backoff

T = TypeVar("T")


async def retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    on: tuple[type[BaseException], ...],
    backoff: Backoff,
    deadline_s: float,
) -> T:
    """Calls `attempt` until it succeeds.

    Args:
        attempt: makes one try.
        on: what is worth another try; anything else passes through at once.
        backoff: waits between tries.
        deadline_s: real seconds after which the last failure passes through.
    """
    end_s = clock.real_monotonic_s() + deadline_s
    failures = 0
    while True:
        try:
            return await attempt()
        except on:
            delay_s = backoff.delay_s(failures, ids.jitter())
            if clock.real_monotonic_s() + delay_s >= end_s:
                raise
        failures += 1
        await clock.real_sleep(delay_s)
