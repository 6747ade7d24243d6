"""Callers of one question share one answer, without any of them getting an answer older than its question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Runs `fetch` at most once at a time and hands each result to all who waited for it to start.

    A caller never gets the result of a fetch that began before it called: that answer may predate
    what the caller already knows. So while one fetch runs, all newcomers share the next one.

    Cancellation: a cancelled caller leaves the others unharmed; if it was the one that fetched for
    them, one of them fetches anew.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]]) -> None:
        self._fetch = fetch
        self._running: asyncio.Future[T] | None = None
        self._next: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        while True:
            upcoming = self._next
            if upcoming is None:
                return await self._lead()
            await _settled(upcoming)
            if not upcoming.cancelled():
                return upcoming.result()

    async def _lead(self) -> T:
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Nobody may be left to read a failure; the leader raises it anyway.
        mine.add_done_callback(_retrieve)
        self._next = mine
        try:
            if self._running is not None:
                await _settled(self._running)
            self._running, self._next = mine, None
            result = await self._fetch()
        except asyncio.CancelledError:
            mine.cancel()
            raise
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(result)
            return result
        finally:
            if self._next is mine:
                self._next = None
            if self._running is mine:
                self._running = None


def _settled(future: asyncio.Future[T]) -> asyncio.Future[None]:
    """A future of the caller's own, which its cancellation may cancel, that ends when `future` does."""
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if future.done():
        settled.set_result(None)
    else:
        future.add_done_callback(lambda _: None if settled.done() else settled.set_result(None))
    return settled


def _retrieve(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()
